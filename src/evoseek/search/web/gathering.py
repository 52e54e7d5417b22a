"""Concurrent calls, one for each distinct query."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from evoseek.types import Passage


async def for_each(queries: Sequence[str], call: Callable[[str], Awaitable[list[Passage]]]) -> list[list[Passage]]:
    """The results of `call` for each query, in their order; equal queries share one call. If one fails, its error is
    raised when all have ended."""
    distinct = list(dict.fromkeys(queries))
    results = await asyncio.gather(*map(call, distinct), return_exceptions=True)
    if failed := next((result for result in results if isinstance(result, BaseException)), None):
        raise failed
    found = {query: result for query, result in zip(distinct, results, strict=True) if isinstance(result, list)}
    return [list(found[query]) for query in queries]  # callers do not share lists
