"""The one place where calls queue: it bounds the number of concurrent calls, however many thousands of rollouts make
them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from evoseek.errors import ConfigError, ToolError

T = TypeVar("T")


class CallPool:
    """Runs at most `concurrency` calls at once, while at most `waiting` more (None: any number) wait in a queue, first
    come, first served; further calls are held back, in the same order, until a place in the queue is free.

    `deadline_s` (None: any time) is for a call that was let in, its wait in the queue included, so let in no more calls
    than can be served well before it. A call that is held back has only the deadline of its own rollout. A cancelled
    caller leaves the queue, or ends its call, and frees its place at once.

    It can be used in one event loop at a time. Raises ConfigError for limits that allow no call.
    """

    def __init__(self, *, concurrency: int, waiting: int | None = None, deadline_s: float | None = None) -> None:
        if concurrency < 1 or (waiting or 0) < 0 or not (deadline_s is None or deadline_s > 0):
            shown = ("any number" if waiting is None else waiting, "any" if deadline_s is None else deadline_s)
            raise ConfigError(
                f"A server cannot be called {concurrency} times at once while {shown[0]} wait, for {shown[1]} seconds "
                "each. Expected at least one at once, none or more that wait, and a time above 0."
            )
        self._concurrency, self._waiting, self._deadline_s = concurrency, waiting, deadline_s
        self._line: _Line | None = None

    async def run(self, call: Callable[[], Awaitable[T]]) -> T:
        """Run a call when its turn comes, and return its result. Raises what the call raises, and ToolError at the
        deadline."""
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
            line_up = "any number" if self._waiting is None else f"up to {self._waiting}"
            raise ToolError(
                f"{what} within {self._deadline_s:g} seconds, with {self._concurrency} calls running at once and "
                f"{line_up} waiting. Raise deadline_s, or let fewer wait."
            ) from error

    def _opened(self) -> _Line:
        most = sys.maxsize if self._waiting is None else self._concurrency + self._waiting
        return _Line(asyncio.Semaphore(most), asyncio.Semaphore(self._concurrency))


@dataclass(slots=True)
class _Line:
    """Semaphores serve in the order of arrival."""

    places: asyncio.Semaphore
    turns: asyncio.Semaphore
    calls: int = 0
