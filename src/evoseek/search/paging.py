"""A search engine that keeps later pages of results."""

from __future__ import annotations

from collections.abc import Sequence

from evoseek.protocols import SearchEngine
from evoseek.types import Passage


class PagingEngine:
    """Asks `engine` for `pages` pages of results at once, gives the first of them and keeps all.

    `pages_of` gives what was found for a query, page by page. `queries` counts those that were sent to the engine.
    """

    def __init__(self, engine: SearchEngine, pages: int) -> None:
        self._engine, self._pages = engine, pages
        self._found: dict[str, list[list[Passage]]] = {}
        self.queries = 0

    @property
    def is_local(self) -> bool:
        """As for the engine."""
        return self._engine.is_local

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The first page, of k passages. Raises ToolError."""
        self.queries += len(queries)
        results = await self._engine.search(queries, k * self._pages)
        for query, found in zip(queries, results, strict=True):
            self._found[query] = [found[start : start + k] for start in range(0, len(found), k)]
        return [found[:k] for found in results]

    def pages_of(self, query: str) -> list[list[Passage]]:
        """The pages of a query that was searched for, without empty ones."""
        return self._found[query]
