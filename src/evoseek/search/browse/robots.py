"""The rules of sites for robots (RFC 9309)."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

import httpx2

from evoseek.errors import PageError
from evoseek.search.browse.address import origin_of
from evoseek.search.browse.extract import Extractor

MAX_ROBOTS = 500 * 1024
"""Bytes of a robots.txt that are read (RFC 9309, 2.5)."""

MAX_DELAY_S = 60.0
"""Seconds between requests that a site may ask for (Crawl-delay). A site that asks for more is not read at all: no
rollout could wait that long."""

_PERIOD_S = 24 * 3600.0  # section 2.4
_REMEMBERED = 512

Reader = Callable[[httpx2.URL], Awaitable[tuple[int, bytes]]]
"""URL to status and body, after redirects. Raises ToolError where the server is not reached or has failed."""


class Robots:
    """The robots.txt of each site, read once in 24 hours.

    As RFC 9309, 2.3.1, has it: a missing file (400 to 499, redirects that lead nowhere) forbids nothing. A file that is
    temporarily unavailable (500 to 599, no connection, also 429) forbids everything; this is no property of the page,
    so it is a ToolError, and is not cached. The text is parsed in the same processes as pages, for the same reasons.
    """

    def __init__(self, extractor: Extractor, agent: str) -> None:
        self._extractor, self._agent = extractor, agent
        self._bodies: OrderedDict[str, tuple[float, bytes]] = OrderedDict()
        self._reading: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def delay_s(self, url: httpx2.URL, read: Reader) -> float:
        """The seconds that the site wants between requests. Raises PageError if it forbids the URL or wants more than
        `MAX_DELAY_S`, and ToolError."""
        body = await self._body(url, read)
        if not body.strip():
            return 0.0
        allowed, delay_s = await self._extractor.robots(body, self._agent, str(url))
        if not allowed:
            raise PageError(f"The site of {url} asks robots not to read it (in its robots.txt). Choose another page.")
        if delay_s > MAX_DELAY_S:
            raise PageError(
                f"The site of {url} asks robots to wait {delay_s:g} seconds between requests (in its robots.txt), more "
                f"than the {MAX_DELAY_S:g} that are waited at most. Choose another page."
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
