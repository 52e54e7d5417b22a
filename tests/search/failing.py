"""A search engine that fails: a public test double for outages."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from evoseek.errors import ToolError
from evoseek.protocols import SearchEngine
from evoseek.types import Passage


class FailingEngine:
    """Implements `SearchEngine` over `engine`, and raises ToolError in the share `failing` of its calls (1: always).

    Which calls fail is determined by the seed, the queries, and how often these were made before: a retry may succeed.
    `calls` and `failures` are counted.
    """

    def __init__(self, engine: SearchEngine, failing: float, seed: int = 0) -> None:
        self._engine, self._failing, self._seed = engine, failing, seed
        self._asked: Counter[tuple[str, ...]] = Counter()
        self.calls = self.failures = 0

    @property
    def is_local(self) -> bool:
        """As for the engine."""
        return self._engine.is_local

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The engine's results. Raises ToolError."""
        key = tuple(queries)
        self._asked[key] += 1
        self.calls += 1
        if random.Random(f"{self._seed}/fails/{key}/{self._asked[key]}").random() < self._failing:
            self.failures += 1
            raise ToolError("the search engine is down")
        return await self._engine.search(queries, k)
