"""A generated world on the loopback: its site, and a search API.

GET  /<path>                                  the site's pages (evoseek.world.site)
GET  /robots.txt
GET  /searxng/search?q=...&format=json        as SearXNG
     -> {"query", "results": [{"title", "url", "content"}]}
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock, Thread
from urllib.parse import parse_qs

from evoseek.errors import ConfigError
from evoseek.search.lexical import LexicalIndex
from evoseek.types import Passage
from evoseek.world.site import ROBOTS, Site

RESULTS = 10  # of a search
MAX_BODY = 16 * 1024  # bytes of a request's body
_IDLE_S = 60.0  # seconds that a client may be silent


@contextmanager
def serving(site: Site, port: int = 0) -> Generator[SiteApi]:
    """Serve a site on 127.0.0.1 within the block; port 0 is any free one. Raises ConfigError if the port is taken."""
    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), _Handler)
    except OSError as error:
        raise ConfigError(
            f"Cannot listen on 127.0.0.1:{port} ({error.strerror or error}). Give another port; 0 is any free one."
        ) from error
    with server, TemporaryDirectory(prefix="evoseek-") as directory:
        index = LexicalIndex.build(Path(directory), site.passages())
        api = SiteApi(site, index, f"http://127.0.0.1:{server.server_port}")
        server.RequestHandlerClass = type("_BoundHandler", (_Handler,), {"api": api})
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield api
        finally:
            server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    protocol_version, timeout = "HTTP/1.1", _IDLE_S
    api: SiteApi

    def do_GET(self) -> None:
        length = self.headers.get("content-length", "0")
        if not (length.isascii() and length.isdecimal() and int(length) <= MAX_BODY):
            self.send_error(413)
            return
        self.rfile.read(int(length))
        response = self.api.respond(self.command, self.path)
        with suppress(ConnectionError):  # the client has left
            self.send_response(response.status)
            for name, value in response.all_headers:
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(response.body)

    do_HEAD = do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: requests are counted."""


@dataclass(frozen=True, slots=True)
class Response:
    """Status, body, and headers other than the body's type and length."""

    status: int
    body: bytes = b""
    content_type: str = "text/html; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of_json(cls, value: object, status: int = 200) -> Response:
        return cls(status, json.dumps(value).encode(), "application/json")

    @property
    def all_headers(self) -> list[tuple[str, str]]:
        return [("Content-Type", self.content_type), ("Content-Length", str(len(self.body))), *self.headers]


class SiteApi:
    """The responses of a site at `host` and its search API. `index` holds the site's passages. `counts` has the number
    of requests of each kind: "page", "search" and "robots"."""

    def __init__(self, site: Site, index: LexicalIndex, host: str) -> None:
        self.site, self.index, self.host = site, index, host
        self.counts, self._one_at_a_time = Counter[str](), Lock()

    def find(self, query: str, k: int) -> list[Passage]:
        """Return at most k results, with addresses as ids, and snippets that usually do not suffice for an answer."""
        return [self._result(found, query) for found in self.index.ranked(query, k)]

    def _result(self, found: Passage, query: str) -> Passage:
        url, snippet = self.host + found.id, self.site.snippet(int(found.document_id), query)
        return Passage(url, url, found.title, snippet, score=found.score)

    def respond(self, method: str, target: str) -> Response:
        path, _, query = target.partition("?")
        with self._one_at_a_time:
            self.counts[kind_of(target)] += 1
            match method, path:
                case _, "/robots.txt":
                    return Response(200, ROBOTS.encode(), "text/plain; charset=utf-8")
                case "GET", "/searxng/search":
                    return self._searxng(query)
                case "GET" | "HEAD", _:
                    return self._page(path)
                case _:
                    return Response(405, b"This method is not allowed here.", "text/plain; charset=utf-8")

    def _page(self, path: str) -> Response:
        page = self.site.page(path)
        headers = () if page.location is None else (("Location", page.location),)
        return Response(page.status, page.html.encode(), headers=headers)

    def _searxng(self, query: str) -> Response:
        asked = parse_qs(query)
        if "q" not in asked or asked.get("format") != ["json"]:
            return Response.of_json({"error": "Expected ?q=<text>&format=json."}, 400)
        found = self.find(asked["q"][0], RESULTS)
        results = [{"title": result.title, "url": result.id, "content": result.text} for result in found]
        return Response.of_json({"query": asked["q"][0], "results": results})


def kind_of(target: str) -> str:
    """Return the kind of a request: "search", "robots" or "page"."""
    path = target.partition("?")[0]
    return {"/robots.txt": "robots", "/searxng/search": "search"}.get(path, "page")
