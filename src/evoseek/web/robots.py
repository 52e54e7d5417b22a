"""Politeness: the rules of sites for robots (RFC 9309), and the pace of requests to a host."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

import httpx2

from evoseek.errors import PageError, ToolError
from evoseek.web.address import origin_of
from evoseek.web.extract import Extractor

MAX_ROBOTS = 500 * 1024
"""Number of bytes of a robots.txt that are read (RFC 9309, 2.5)."""

MAX_DELAY_S = 60.0
"""Maximum seconds between requests that a site may ask for (Crawl-delay). A site that asks for more is never read: no
rollout could wait that long."""

_PERIOD_S = 24 * 3600.0  # section 2.4
_REMEMBERED = 512

Reader = Callable[[httpx2.URL], Awaitable[tuple[int, bytes]]]
"""URL to status and body, after redirects. Raises ToolError if the server cannot be reached or failed."""


class Robots:
    """The robots.txt of each site, read once in 24 hours.

    As in RFC 9309, 2.3.1, a missing file (400 to 499, redirects that lead nowhere) forbids nothing. A temporarily
    unavailable file (500 to 599, no connection, also 429) forbids everything; this is not a property of the page, so it
    is a ToolError, and not cached. The text is parsed in the same processes as pages, for the same reasons.
    """

    def __init__(self, extractor: Extractor, agent: str) -> None:
        self._extractor, self._agent = extractor, agent
        self._bodies: OrderedDict[str, tuple[float, bytes]] = OrderedDict()
        self._reading: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def delay_s(self, url: httpx2.URL, read: Reader) -> float:
        """Return the site's seconds between requests. Raises PageError if it forbids the URL or wants more than
        `MAX_DELAY_S`, and ToolError."""
        body = await self._body(url, read)
        if not body.strip():
            return 0.0
        allowed, delay_s = await self._extractor.robots(body, self._agent, str(url))
        if not allowed:
            raise PageError(f"The site of {url} asks robots not to read it (in its robots.txt). Choose another page.")
        if delay_s > MAX_DELAY_S:
            raise PageError(
                f"The site of {url} asks robots to wait {delay_s:g} seconds between requests (in its robots.txt), but "
                f"the wait is at most {MAX_DELAY_S:g}. Choose another page."
            )
        return delay_s

    async def _body(self, url: httpx2.URL, read: Reader) -> bytes:
        origin = origin_of(url)
        lock = self._reading.setdefault(origin, asyncio.Lock())
        async with lock:  # concurrent callers read it only once
            until, body = self._bodies.pop(origin, (0.0, b""))
            if until < time.monotonic():
                until, body = time.monotonic() + _PERIOD_S, await _robots_txt(url, read)
            self._bodies[origin] = until, body
            if len(self._bodies) > _REMEMBERED:
                self._bodies.popitem(last=False)
            return body


async def _robots_txt(url: httpx2.URL, read: Reader) -> bytes:
    try:
        status, body = await read(url.copy_with(path="/robots.txt", query=None))
    except PageError:
        return b""
    return body if 200 <= status < 300 else b""


_HOSTS = 4096  # maximum number of hosts, above which idle ones are forgotten


class HostThrottle:
    """A throttle that admits at most `concurrency` concurrent requests to a host, each at least `interval_s` seconds
    after the start of the one before."""

    def __init__(self, interval_s: float, concurrency: int) -> None:
        self._interval_s, self._concurrency = interval_s, concurrency
        self._places: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()  # while somebody needs them
        self._next: dict[str, float] = {}  # on time.monotonic()

    @asynccontextmanager
    async def turn(self, host: str, *, delay_s: float = 0.0, until: float) -> AsyncGenerator[None]:
        """Wait for a turn; the next one may begin `delay_s` seconds after it, if that is longer than the usual
        interval.

        Raises ToolError immediately if the host must not be called before `until` (on time.monotonic()).
        """
        async with self._places.setdefault(host, asyncio.Semaphore(self._concurrency)):
            await self._wait(host, until)
            self.pause(host, max(self._interval_s, delay_s))
            yield

    def pause(self, host: str, seconds: float) -> None:
        now = time.monotonic()
        if len(self._next) > _HOSTS:
            self._next = {name: when for name, when in self._next.items() if when > now}
        self._next[host] = max(self._next.get(host, 0.0), now + seconds)

    async def _wait(self, host: str, until: float) -> None:
        """Wait until the last request is long enough ago. Only a caller that is still waiting takes a turn, so none is
        lost."""
        while (left := self._next.get(host, 0.0) - time.monotonic()) > 0:
            if time.monotonic() + left > until:
                raise ToolError(
                    f"{host} must not be called for {left:.0f} more seconds, which is longer than a page may take. "
                    "Ask again later, or raise the fetcher's time limit."
                )
            await asyncio.sleep(left)
