"""One call for each of several queries, side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


async def for_each(queries: Sequence[str], call: Callable[[str], Awaitable[T]]) -> list[T]:
    """What `call` gives for each query, in their order. If one fails, its error is raised when all have ended."""
    results = await asyncio.gather(*map(call, queries), return_exceptions=True)
    if failed := next((result for result in results if isinstance(result, BaseException)), None):
        raise failed
    return [result for result in results if not isinstance(result, BaseException)]
