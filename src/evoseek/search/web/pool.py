"""Tool calls of thousands of rollouts on one machine: only so many at a time, the others in line."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from evoseek.errors import ConfigError, ToolError
from evoseek.protocols import Fetcher, SearchEngine
from evoseek.types import Page, Passage

T = TypeVar("T")


class CallPool:
    """Runs at most `concurrency` calls at once, while at most `waiting` more wait for their turn, first come first
    served; whoever comes then is held back until one of those has ended, in the same order.

    `deadline_s` is for a call that was let in, its wait included, so that it is answered by then even if nothing else
    ever is: let in no more than can be served well before. Whoever is held back has the deadline of their own rollout
    alone. A cancelled caller leaves the line, or ends its call, and frees the place at once.

    It can be used in one event loop at a time. Raises ConfigError for limits that allow no call.
    """

    def __init__(self, *, concurrency: int, waiting: int, deadline_s: float) -> None:
        if concurrency < 1 or waiting < 0 or not deadline_s > 0:
            raise ConfigError(
                f"A pool cannot run {concurrency} calls at once while {waiting} wait, for {deadline_s} seconds each. "
                "Expected at least one at once, none or more that wait, and a time above 0."
            )
        self._concurrency, self._waiting, self._deadline_s = concurrency, waiting, deadline_s
        self._line: _Line | None = None

    async def run(self, call: Callable[[], Awaitable[T]]) -> T:
        """What a call gives, when it is its turn. Raises what it raises, and ToolError at the deadline."""
        line = self._line = self._line or self._opened()
        line.calls += 1
        try:
            async with line.places:
                return await self._in_time(line, call)
        finally:
            line.calls -= 1
            if not line.calls:  # the next one may come from another event loop
                self._line = None

    async def _in_time(self, line: _Line, call: Callable[[], Awaitable[T]]) -> T:
        timer, begun = asyncio.timeout(self._deadline_s), False
        try:
            async with timer, line.turns:
                begun = True
                return await call()
        except TimeoutError as error:
            if not timer.expired():  # the call's own
                raise
            what = "The call was not answered" if begun else "The call's turn did not come"
            raise ToolError(
                f"{what} within {self._deadline_s:g} seconds, with {self._concurrency} calls running at once and up to "
                f"{self._waiting} waiting. Raise the pool's deadline, or let fewer wait."
            ) from error

    def _opened(self) -> _Line:
        return _Line(asyncio.Semaphore(self._concurrency + self._waiting), asyncio.Semaphore(self._concurrency))


@dataclass(slots=True)
class _Line:
    """Semaphores serve in the order of arrival."""

    places: asyncio.Semaphore
    turns: asyncio.Semaphore
    calls: int = 0


@dataclass(frozen=True, slots=True)
class PooledEngine:
    """A `SearchEngine` whose calls go through a pool, which several may share."""

    engine: SearchEngine
    pool: CallPool

    @property
    def is_local(self) -> bool:
        """As the engine is."""
        return self.engine.is_local

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """What the engine finds. Raises ToolError."""
        return await self.pool.run(lambda: self.engine.search(queries, k))


@dataclass(frozen=True, slots=True)
class PooledFetcher:
    """A `Fetcher` whose calls go through a pool, which several may share."""

    fetcher: Fetcher
    pool: CallPool

    @property
    def is_local(self) -> bool:
        """As the fetcher is."""
        return self.fetcher.is_local

    async def fetch(self, url: str) -> Page:
        """The page. Raises PageError or ToolError."""
        return await self.pool.run(lambda: self.fetcher.fetch(url))
