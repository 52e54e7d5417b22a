"""One call for each of several queries that differ, side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from evoseek.types import Passage


async def for_each(queries: Sequence[str], call: Callable[[str], Awaitable[list[Passage]]]) -> list[list[Passage]]:
    """What `call` finds for each query, in their order; the same query is called for once. If one fails, its error is
    raised when all have ended."""
    distinct = list(dict.fromkeys(queries))
    results = await asyncio.gather(*map(call, distinct), return_exceptions=True)
    if failed := next((result for result in results if isinstance(result, BaseException)), None):
        raise failed
    found = {query: result for query, result in zip(distinct, results, strict=True) if isinstance(result, list)}
    return [list(found[query]) for query in queries]  # nobody's list is another one's
