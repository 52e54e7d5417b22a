"""A retrieval server: an index behind the wire format of `search.wire`, a drop-in for Search-R1's.

    POST /retrieve   as in `search.wire`; 400 for a wrong request, 413 for one that is too large, 503 when too busy
    GET /health      {"status": "ok", "passages": ..., "queries": ..., "batches": ...}

Every error is {"error": "..."}: what was got, what was expected.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from evoseek.policy.encoding import well_formed
from evoseek.search.wire import RequestError, read_request, result_body
from evoseek.serve.batching import BusyError, Find, MicroBatcher
from evoseek.serve.body import read_body
from evoseek.serve.listening import listen

_LOG = logging.getLogger(__name__)


class Served(Protocol):
    """An index that answers many queries at once."""

    @property
    def find_all(self) -> Find:
        """At most k passages for each query, best first."""
        ...

    def __len__(self) -> int:
        """Number of passages."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server accepts: queries of a request and of a batch, characters of a query, passages for a query, bytes of
    a body, queries that wait; and the seconds in which requests under way may still end when it is stopped."""

    max_queries: int = 1_024
    max_query: int = 20_000
    max_batch: int = 256
    max_k: int = 1_000
    max_body: int = 4 * 2**20
    max_waiting: int = 16_384
    drain_s: int = 30


class RetrievalServer:
    """The application (ASGI) is `app`."""

    def __init__(self, index: Served, limits: Limits | None = None) -> None:
        self._index, self._limits = index, limits or Limits()
        self._batcher = MicroBatcher(
            index.find_all, max_batch=self._limits.max_batch, max_waiting=self._limits.max_waiting
        )
        self.app = Starlette(
            routes=[Route("/retrieve", self._retrieve, methods=["POST"]), Route("/health", self._health)],
            exception_handlers={HTTPException: _refused},
        )

    def run(self, host: str, port: int, *, started: Callable[[str], None] = lambda url: None) -> None:
        """Serve until SIGTERM or Ctrl-C, then accept nothing more, answer what is under way, and return. `started` is
        given the address. Raises ConfigError if the address cannot be had."""
        listen(self.app, host, port, started=started, drain_s=self._limits.drain_s)

    async def _retrieve(self, request: Request) -> Response:
        limits = self._limits
        try:
            body = json.loads(await read_body(request, limits.max_body, remedy="Send fewer or shorter queries."))
        except (ValueError, RecursionError) as error:
            raise HTTPException(400, f"The body is not JSON ({error}).") from error
        try:
            asked = read_request(body, max_queries=limits.max_queries, max_k=limits.max_k, max_query=limits.max_query)
        except RequestError as error:
            raise HTTPException(400, str(error)) from error
        try:
            found = await self._batcher.search([well_formed(query) for query in asked.queries], asked.k)
        except BusyError as error:
            what = f"More than {limits.max_waiting} queries would be waiting. Send fewer at a time, or retry later."
            raise HTTPException(503, what, {"Retry-After": "1"}) from error
        except Exception as error:  # an engine of any kind; an error that is not caught would end the connection
            what = f"The search failed: {type(error).__name__}: {error}"
            _LOG.error(what)
            raise HTTPException(500, what) from error
        return JSONResponse(result_body(found, return_scores=asked.return_scores))

    async def _health(self, request: Request) -> Response:
        batcher = self._batcher
        counts = {"passages": len(self._index), "queries": batcher.queries, "batches": batcher.batches}
        return JSONResponse({"status": "ok", **counts})


async def _refused(request: Request, error: Any) -> Response:
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)
