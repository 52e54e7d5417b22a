"""A generated world on the loopback: its site, a search API in the shapes of two providers, and faults as switches.

GET  /<path>                                  the site's pages (evoseek.world.site)
GET  /robots.txt
POST /search {"q": ..., "num": ...}           as Serper; with a header X-API-KEY, any key
     -> {"organic": [{"title", "link", "snippet", "position"}]}
GET  /searxng/search?q=...&format=json        as SearXNG
     -> {"query", "results": [{"title", "url", "content"}]}

`SiteWeb` gives the same answers in this process, without a network.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import parse_qs

import h11

from evoseek.errors import PageError
from evoseek.search.browse.extract_worker import page
from evoseek.search.lexical import LexicalIndex
from evoseek.types import Page, Passage
from evoseek.world.faults import Faults, Response, false_response
from evoseek.world.loopback import Connection, Loopback, Request, plain_error
from evoseek.world.site import ROBOTS, Site

MAX_RESULTS, RESULTS = 100, 10  # of a search: at most, and where no number is given
CACHED = 4096  # pages, and as many searches, kept ready


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
        self._page = lru_cache(CACHED)(self._make_page)

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncGenerator[str]:
        """Serve within the block, and give the address, as `listening` does. Raises ConfigError."""
        with TemporaryDirectory(prefix="evoseek-") as temporary:
            index = LexicalIndex.build(self._directory or Path(temporary), self.site.passages())
            async with self.listening(port) as url:
                self._results = lru_cache(CACHED)(SiteWeb(self.site, index, url).find)
                yield url

    def refused(self, error: h11.RemoteProtocolError) -> None:
        """Count it."""
        self.counts["bad request"] += 1

    async def answer(self, connection: Connection, request: Request) -> bool:
        """Answer a request, or misbehave as is drawn. False: nothing more can be said on this connection."""
        path, _, query = request.target.partition("?")
        if path == "/robots.txt":
            self.counts["robots"] += 1
            await connection.send(Response(200, ROBOTS.encode(), "text/plain; charset=utf-8"))
            return True
        is_search = path in ("/search", "/searxng/search")
        kind, faults = ("search", self.search_faults) if is_search else ("page", self.page_faults)
        self.counts[kind] += 1
        asked = f"{request.target} {request.body.decode(errors='replace')}"
        fault = faults.draw(asked)
        if fault is None:
            await connection.send(self._right_response(request, path, query))
            return True
        self.counts[f"{kind} {fault}"] += 1
        if (response := false_response(fault, asked, self._retry_after_s)) is not None:
            await connection.send(response)
            return True
        await connection.send_badly(self._right_response(request, path, query), fault, self._slow_s)
        return False

    def _right_response(self, request: Request, path: str, query: str) -> Response:
        match request.method, path:
            case "POST", "/search":
                return self._serper(request)
            case "GET", "/searxng/search":
                return self._searxng(query)
            case "GET" | "HEAD", _:
                return self._page(path)
            case _:
                return plain_error(405, "This method is not allowed here.")

    def _make_page(self, path: str) -> Response:
        page = self.site.page(path)
        headers = () if page.location is None else (("location", page.location),)
        return Response(page.status, page.html.encode(), headers=headers)

    # -- searching --------------------------------------------------------------------------------------------------

    def _serper(self, request: Request) -> Response:
        if not request.headers.get("x-api-key"):
            return Response.of_json({"message": "Unauthorized.", "statusCode": 403}, 403)
        try:
            asked: object = json.loads(request.body)
        except (ValueError, RecursionError):
            asked = None
        match asked:
            case {"q": str(query), "num": int(number)}:
                pass
            case {"q": str(query)}:
                number = RESULTS
            case _:
                return Response.of_json({"message": 'Expected {"q": <text>, "num": <number>}.', "statusCode": 400}, 400)
        found = self._results(query, min(number, MAX_RESULTS))
        organic = [
            {"title": result.title, "link": result.id, "snippet": result.text, "position": position}
            for position, result in enumerate(found, start=1)
        ]
        return Response.of_json({"searchParameters": {"q": query, "num": number}, "organic": organic})

    def _searxng(self, query: str) -> Response:
        asked = parse_qs(query)
        if "q" not in asked or asked.get("format") != ["json"]:
            return Response.of_json({"error": "Expected ?q=<text>&format=json."}, 400)
        found = self._results(asked["q"][0], RESULTS)
        results = [{"title": result.title, "url": result.id, "content": result.text} for result in found]
        return Response.of_json({"query": asked["q"][0], "results": results})


class SiteWeb:
    """A `SearchEngine` and a `Fetcher` of a site's pages at `host`. `index` holds the site's passages.

    Results, redirects and pages are those of a served site without faults; its robots.txt is not asked.
    """

    is_local = True

    def __init__(self, site: Site, index: LexicalIndex, host: str = "http://127.0.0.1:43617") -> None:
        self.site, self.index, self.host = site, index, host

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """For each query at most k results: their addresses as ids, and snippets that usually do not suffice."""
        return [self.find(query, k) for query in queries]

    def find(self, query: str, k: int) -> list[Passage]:
        """At most k results for one query."""
        return [self._result(found, query) for found in self.index.find(query, k)]

    def _result(self, found: Passage, query: str) -> Passage:
        url, snippet = self.host + found.id, self.site.snippet(int(found.document_id), query)
        return Passage(url, url, found.title, snippet, score=found.score)

    async def fetch(self, url: str) -> Page:
        """The page at an address, its text as it is taken from any page. Raises PageError for one that is not there."""
        path = url.removeprefix(self.host)
        if path == url:
            raise PageError(f"The page {url} cannot be read: there is no other host than {self.host}.")
        while (answer := self.site.page(path)).location is not None:
            path = answer.location
        if answer.status != 200:
            raise PageError(f"The page {self.host}{path} cannot be read: {answer.status}. Choose another page.")
        read = page({"kind": "text/html"}, answer.html.encode())
        return Page(self.host + path, str(read["title"]), str(read["text"]))
