"""Politeness: when the next request to a host may be made."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from evoseek.errors import ToolError

_REMEMBERED = 4096  # number of hosts above which those without a pending wait are forgotten


class HostThrottle:
    """Lets in at most `concurrency` requests to a host at once, and each at least `interval_s` seconds after the one
    before began."""

    def __init__(self, interval_s: float, concurrency: int) -> None:
        self._interval_s, self._concurrency = interval_s, concurrency
        self._places: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()  # while somebody needs them
        self._next: dict[str, float] = {}  # on time.monotonic()

    @asynccontextmanager
    async def turn(self, host: str, *, delay_s: float = 0.0, until: float) -> AsyncGenerator[None]:
        """A turn; the next one may begin `delay_s` seconds after it, if that is longer than the usual interval.

        Raises ToolError at once if the host must not be called before `until` (on time.monotonic()).
        """
        async with self._places.setdefault(host, asyncio.Semaphore(self._concurrency)):
            await self._wait(host, until)
            self.pause(host, max(self._interval_s, delay_s))
            yield

    def pause(self, host: str, seconds: float) -> None:
        """Make no request to the host for so many seconds."""
        now = time.monotonic()
        if len(self._next) > _REMEMBERED:
            self._next = {name: when for name, when in self._next.items() if when > now}
        self._next[host] = max(self._next.get(host, 0.0), now + seconds)

    async def _wait(self, host: str, until: float) -> None:
        """Wait until the last request is long enough ago. A turn is taken only by a caller that is still waiting, so
        none is lost."""
        while (left := self._next.get(host, 0.0) - time.monotonic()) > 0:
            if time.monotonic() + left > until:
                raise ToolError(
                    f"{host} is to be left alone for {left:.0f} more seconds, which is longer than a page may take. "
                    "Ask again later, or raise the fetcher's time limit."
                )
            await asyncio.sleep(left)
