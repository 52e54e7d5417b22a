"""A generated world's site with faults as switches: the answers of `evoseek.world.server`, or something else."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import h11
from tests.doubles.faults import Faults, false_response
from tests.doubles.loopback import Connection, Loopback, Request

from evoseek.search.lexical import LexicalIndex
from evoseek.world.server import SiteApi, kind_of
from evoseek.world.site import Site

CACHED = 4096  # searches kept ready


class WorldSite(Loopback):
    """The server. It answers within the event loop that it is started in, without threads.

    `page_faults` and `search_faults` are the switches, all off at first, to be set at any time; robots.txt always
    works. `counts` has how many requests of each kind came ("page", "search", "robots", "bad request"), and how many
    of them met which fault ("page hang"). The index is made in `directory`, in place of one that is there, or in a
    temporary one. A slow body takes `slow_s` seconds; `retry_after_s` is what a 429 tells the client to wait.
    """

    def __init__(
        self, site: Site, directory: Path | None = None, *, slow_s: float = 10.0, retry_after_s: int = 1
    ) -> None:
        super().__init__()
        self.site = site
        self.counts = Counter[str]()
        self.page_faults, self.search_faults = Faults(f"{site.seed}/page"), Faults(f"{site.seed}/search")
        self._directory, self._slow_s, self._retry_after_s = directory, slow_s, retry_after_s

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncGenerator[str]:
        """Serve within the block, and give the address, as `listening` does. Raises ConfigError."""
        with TemporaryDirectory(prefix="evoseek-") as temporary:
            index = LexicalIndex.build(self._directory or Path(temporary), self.site.passages())
            async with self.listening(port) as url:
                self._api = _Cached(self.site, index, url)
                yield url

    def refused(self, error: h11.RemoteProtocolError) -> None:
        """Count it."""
        self.counts["bad request"] += 1

    async def answer(self, connection: Connection, request: Request) -> bool:
        """Answer a request, or misbehave as is drawn. False: nothing more can be said on this connection."""
        kind = kind_of(request.target)
        self.counts[kind] += 1
        asked = f"{request.target} {request.body.decode(errors='replace')}"
        switches = {"page": self.page_faults, "search": self.search_faults}
        fault = switches[kind].draw(asked) if kind in switches else None
        right = self._api.respond(request.method, request.target)
        if fault is None:
            await connection.send(right)
            return True
        self.counts[f"{kind} {fault}"] += 1
        if (response := false_response(fault, asked, self._retry_after_s)) is not None:
            await connection.send(response)
            return True
        await connection.send_badly(right, fault, self._slow_s)
        return False


class _Cached(SiteApi):
    """Searches are made once."""

    def __init__(self, site: Site, index: LexicalIndex, host: str) -> None:
        super().__init__(site, index, host)
        self.find = lru_cache(CACHED)(super().find)
