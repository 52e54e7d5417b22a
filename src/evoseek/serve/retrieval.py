"""A retrieval server: an index behind the wire format of `search.remote`, a drop-in for Search-R1's.

    POST /retrieve   as in `search.remote`; 400 for a wrong request, 413 for too large a request, 503 if too busy
    GET /health      {"status": "ok", "passages": ..., "queries": ..., "batches": ...}

Every error has {"error": {"message": "..."}}: what was received and what was expected. Queries that arrive during a
batch's search form the next batch.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from evoseek.errors import first_problem
from evoseek.search.opening import LiveIndex
from evoseek.search.remote import MAX_K, MAX_QUERIES, MAX_QUERY, Request, result_body
from evoseek.serve.connection import BusyError, CancelOnDisconnect, Guard, StoppableServer, listen, refused
from evoseek.serve.keys import is_loopback
from evoseek.types import Passage

_LOG = logging.getLogger(__name__)
_DRAIN_S = 30
_MAX_BATCH, _MAX_WAITING = 256, 16_384  # queries of a batch, and waiting queries
_MAX_BODY = 4 * 2**20
_EXAMPLE = '{"queries": ["..."], "topk": 3}'
_BOUNDS = f"at most {MAX_QUERIES:,} queries of {MAX_QUERY:,} characters, topk from 1 to {MAX_K:,}"
Find = Callable[[Sequence[str], int], list[list[Passage]]]


class RetrievalServer:
    """A retrieval server, with the ASGI application `app`."""

    def __init__(self, index: LiveIndex) -> None:
        self._index = index
        self._batcher = MicroBatcher(index.find_all, max_batch=_MAX_BATCH, max_waiting=_MAX_WAITING)
        app = Starlette(
            routes=[Route("/retrieve", self._retrieve, methods=["POST"]), Route("/health", self._health)],
            exception_handlers={HTTPException: refused},
        )
        self.app = CancelOnDisconnect(app, max_body=_MAX_BODY)

    def run(
        self,
        host: str,
        port: int,
        *,
        names: Collection[str] = (),
        started: Callable[[str], None] = lambda url: None,
    ) -> None:
        """Serve until Ctrl-C or SIGTERM, with a `Guard` against pages of other servers. At an address that other
        machines reach, any name is accepted, unless `names` are given."""
        app = Guard(self.app, keys=(), host=host, names=names or (() if is_loopback(host) else None))
        listen(StoppableServer(app, drain_s=_DRAIN_S), host, port, started=started)

    async def _retrieve(self, request: HttpRequest) -> Response:
        try:
            wanted = Request.model_validate(json.loads(await request.body()))
        except (ValueError, RecursionError) as error:
            what = first_problem(error) if isinstance(error, ValidationError) else f"The body is not JSON ({error})"
            raise HTTPException(400, f"{what}. Expected an object such as {_EXAMPLE}: {_BOUNDS}.") from error
        try:
            found = await self._batcher.search(wanted.queries, wanted.k)
        except BusyError as error:
            raise HTTPException(503, str(error), {"Retry-After": "1"}) from error
        except Exception as error:  # from any engine; an uncaught error would end the connection
            what = f"The search failed: {type(error).__name__}: {error}"
            _LOG.error(what)
            raise HTTPException(500, what) from error
        return JSONResponse(result_body(found, return_scores=bool(wanted.return_scores)))

    async def _health(self, request: HttpRequest) -> Response:
        batcher = self._batcher
        counts = {"passages": len(self._index), "queries": batcher.queries, "batches": batcher.batches}
        return JSONResponse({"status": "ok", **counts})


@dataclass(slots=True)
class _Call:
    queries: Sequence[str]
    k: int
    found: asyncio.Future[list[list[Passage]]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class MicroBatcher:
    """A grouping of concurrent calls into batches, with `find` on one batch at a time, in a thread. A batch has the
    calls that waited longest and ask for the same k, up to `max_batch` queries; a call is never split. At most
    `max_waiting` queries wait.

    Engines encode queries much faster in batches. A batch starts without waiting for further calls. `queries` and
    `batches` count the searched ones. Use a batcher in one event loop only.
    """

    def __init__(self, find: Find, *, max_batch: int, max_waiting: int) -> None:
        self._find, self._max_batch, self._max_waiting = find, max_batch, max_waiting
        self._waiting: deque[_Call] = deque()
        self._worker: asyncio.Task[None] | None = None
        self.queries = self.batches = 0

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return at most k passages for each query. Raises BusyError, and what `find` raises."""
        if sum(len(call.queries) for call in self._waiting) + len(queries) > self._max_waiting:
            raise BusyError(f"More than {self._max_waiting} queries would wait. Send fewer at a time, or retry later.")
        call = _Call(queries, k)
        self._waiting.append(call)
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())
        return await call.found

    async def _work(self) -> None:
        while batch := self._batch():
            queries = [query for call in batch for query in call.queries]
            self.queries += len(queries)
            self.batches += 1
            try:
                found = iter(await asyncio.to_thread(self._find, queries, batch[0].k))
                for call in batch:
                    own = [next(found) for _ in call.queries]
                    if not call.found.done():
                        call.found.set_result(own)
            except Exception as error:  # from any engine: raised for every caller of the batch
                for call in batch:
                    if not call.found.done():
                        call.found.set_exception(error)
        self._worker = None

    def _batch(self) -> list[_Call]:
        """Take the next calls to answer together from the waiting ones."""
        waiting = [call for call in self._waiting if not call.found.done()]  # clients that left are dropped
        batch, size = list[_Call](), 0
        for call in waiting:
            if call.k == waiting[0].k and (not batch or size + len(call.queries) <= self._max_batch):
                batch.append(call)
                size += len(call.queries)
        taken = set(map(id, batch))
        self._waiting = deque(call for call in waiting if id(call) not in taken)
        return batch
