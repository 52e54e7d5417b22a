"""The agent server: a chat page, OpenAI's chat completions and the Model Context Protocol, over one agent.

    POST /v1/chat/completions   as in `serve.chat_api`, whole or as a stream
    GET  /v1/models[/{name}]    the agent, as a model
    GET  /v1/files/{file}       a document, by its path within the corpus
    GET  /v1/passages/{id}      a passage with those around it, as in `serve.document_routes`
    PUT  /v1/uploads/{name}     a new document, as in `serve.uploads`, if the server takes any
    POST /v1/feedback           a verdict on an answer, if the server keeps them
    POST /mcp                   as in `serve.mcp`
    GET  /                      the chat page
    GET  /health /ready         whether the server lives; whether it has room for a question
    GET  /metrics               numbers for Prometheus

If the queue is full, a question gets 429 with Retry-After. A client that leaves ends its rollout.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from mcp.server.transport_security import TransportSecuritySettings
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from evoseek.agent.answer import Answered, Answerer
from evoseek.errors import DataError, RunError
from evoseek.protocols import SearchEngine
from evoseek.questions.feedback import Feedback, FeedbackFile
from evoseek.search.opening import LiveIndex
from evoseek.search.sources import FileOrigin
from evoseek.serve.answer_queue import AnswerQueue, PendingAnswer, Worker
from evoseek.serve.chat_api import (
    FILES,
    ChatRequest,
    completion,
    judgeable,
    read_feedback,
    read_request,
    side_reply,
    side_stream,
    stream,
)
from evoseek.serve.connection import (
    PAGE_FILES,
    BusyError,
    CancelOnDisconnect,
    Guard,
    StoppableServer,
    listen,
    page_of,
    refused,
    status_of,
)
from evoseek.serve.document_routes import document_routes
from evoseek.serve.mcp import Library, mcp_server
from evoseek.serve.uploads import Uploads
from evoseek.text.scripts import well_formed

_SHOWN = {".pdf": "application/pdf", ".html": "text/html", ".htm": "text/html"} | dict.fromkeys(
    (".txt", ".md", ".rst", ".org", ".csv", ".tsv"), "text/plain"
)
_CHECKED_BEFORE = TransportSecuritySettings(enable_dns_rebinding_protection=False)  # by the Guard
_LOG = logging.getLogger(__name__)
_CANCEL_S = 10.0  # seconds for cancelled rollouts to end
_JUDGEABLE = 1_000  # number of last answers whose verdicts are accepted
_RETRY_S = "5"  # seconds until a client should ask again if the queue is full
ALIAS = "evoseek"
"""A name by which clients may call any model."""


@dataclass(frozen=True, slots=True)
class AgentServerLimits:
    """The limits of a server: concurrent answers, waiting requests, bytes of a body, and the seconds that unfinished
    answers get when it is stopped, before they are cancelled."""

    running: int = 16
    waiting: int = 64
    max_body: int = 2**20
    drain_s: int = 30


class AgentServer:
    """The agent server, with the ASGI application `app`. MCP clients search `engine` (None: nothing). `keys` are the
    valid keys, `host` the address to listen at, `names` its further names. `feedback` keeps conversations with a
    verdict (None: not kept). The chat page suggests the questions `examples`. `uploads` takes new documents (None: none
    are taken)."""

    def __init__(
        self,
        answerer: Answerer,
        engine: SearchEngine | None,
        *,
        limits: AgentServerLimits | None = None,
        keys: Sequence[str] = (),
        host: str = "127.0.0.1",
        names: Collection[str] = (),
        feedback: FeedbackFile | None = None,
        examples: Sequence[str] = (),
        uploads: Uploads | None = None,
    ) -> None:
        self._limits, self._host = limits or AgentServerLimits(), host
        self._worker = Worker()
        self._feedback, self._answers = feedback, OrderedDict[str, Feedback]()
        self._uploads = uploads
        self._index = engine if isinstance(engine, LiveIndex) else None
        self._queue = AnswerQueue(answerer, self._worker, running=self._limits.running, waiting=self._limits.waiting)
        self.model = Path(answerer.name).name or ALIAS
        self._library = Library(engine, self._worker.run, examples) if engine is not None else None
        self._mcp = mcp_server(self._library, self._ask_alone).streamable_http_app(
            stateless_http=True, json_response=True, transport_security=_CHECKED_BEFORE
        )
        app = Starlette(
            routes=self._routes(),
            exception_handlers={HTTPException: refused},
            lifespan=self._living,
        )
        attended = CancelOnDisconnect(app, max_body=self._limits.max_body)
        self.app = Guard(attended, keys=keys, host=host, names=names)

    def run(self, port: int, *, started: Callable[[str], None] = lambda url: None) -> None:
        """Serve as `listen` does; unfinished answers are then cancelled, and their clients get an error."""
        listen(self.stoppable(), self._host, port, started=started)

    def stoppable(self) -> StoppableServer:
        return StoppableServer(self.app, drain_s=self._limits.drain_s, end=self._queue.stop)

    def _routes(self) -> list[BaseRoute]:
        return [
            Route("/", page_of("index.html")),
            *(Route(f"/{name}", page_of(name)) for name in PAGE_FILES),
            Route("/health", self._health),
            Route("/ready", self._ready),
            Route("/metrics", self._metrics),
            Route("/v1/models", self._models),
            Route("/v1/models/{name:path}", self._model),
            Route(f"/{FILES}/{{file:path}}", self._file),
            *document_routes(lambda request: (self._library, self._files)),
            Route("/v1/uploads", self._upload),
            Route("/v1/uploads/{name:path}", self._upload, methods=["PUT"]),
            Route("/v1/chat/completions", self._complete, methods=["POST"]),
            Route("/v1/feedback", self._judge, methods=["POST"]),
            Route("/mcp", self._mcp, methods=["POST"]),
        ]

    @asynccontextmanager
    async def _living(self, app: Starlette) -> AsyncGenerator[None]:
        self._worker.start()
        try:
            async with self._mcp.router.lifespan_context(self._mcp):
                yield
        finally:
            if not await asyncio.to_thread(self._worker.stop, _CANCEL_S):
                _LOG.warning("A model that computes was not waited for any longer; it ends with the process.")

    async def _complete(self, request: Request) -> Response:
        try:
            wanted = read_request(await request.body())
        except DataError as error:
            raise HTTPException(400, str(error)) from error
        self._check_name(wanted.model)
        if (said := wanted.side_task) is not None:
            return _streamed(side_stream(wanted, said)) if wanted.stream else JSONResponse(side_reply(wanted, said))
        try:
            pending = self._queue.ask(wanted.question, wanted.history)
            if self._feedback is not None:
                pending.task.add_done_callback(partial(self._remember, pending.id))
            if wanted.stream:
                return _streamed(stream(pending, wanted, self._files))
            return JSONResponse(await self._reply(pending, wanted))
        except HTTPException:
            raise
        except Exception as error:  # from any model or tool
            headers = {"Retry-After": _RETRY_S} if isinstance(error, BusyError) else None
            raise HTTPException(*status_of(error), headers) from error

    async def _reply(self, pending: PendingAnswer, wanted: ChatRequest) -> Mapping[str, object]:
        answered = await pending.answered()
        if failure := answered.trajectory.failure:
            raise HTTPException(502, f"The question could not be answered: {failure}")
        return completion(pending, answered, wanted, self._files)

    def _remember(self, id: str, task: asyncio.Task[Answered]) -> None:
        """Keep an answer, for a later verdict, in place of the oldest one."""
        if not task.cancelled() and task.exception() is None and not task.result().trajectory.failure:
            self._answers[id] = judgeable(id, task.result())
            if len(self._answers) > _JUDGEABLE:
                self._answers.popitem(last=False)

    async def _judge(self, request: Request) -> Response:
        if self._feedback is None:
            raise HTTPException(404, "This server keeps no feedback. Start it with --feedback.")
        try:
            wanted = read_feedback(await request.body())
        except DataError as error:
            raise HTTPException(400, str(error)) from error
        if (answer := self._answers.get(wanted.id)) is None:
            text = f"The id {wanted.id[:100]!r} is of none of the last {_JUDGEABLE:,} answers since the server started."
            raise HTTPException(404, f"{text} Ask again to judge the answer.")
        try:
            await asyncio.to_thread(self._feedback.add, wanted.over(answer))
        except RunError as error:
            raise HTTPException(507, str(error)) from error
        return JSONResponse({"id": wanted.id, "verdict": wanted.verdict})

    async def _ask_alone(self, question: str) -> Answered:
        """Answer a question without a conversation. Raises BusyError, and EvoseekError if there is no answer."""
        return await self._queue.ask(well_formed(question).strip(), ()).answered()

    @property
    def _files(self) -> Mapping[str, FileOrigin]:
        return self._index.files if self._index is not None else {}

    async def _file(self, request: Request) -> Response:
        origin = self._files.get(request.path_params["file"])
        file = await asyncio.to_thread(origin.opened) if origin else None
        if origin is None or file is None:
            raise HTTPException(404, "The index was built from no such file, or the file was changed or moved since.")
        return _document(origin.path, file)

    async def _upload(self, request: Request) -> Response:
        if self._uploads is None:
            raise HTTPException(404, "This server takes no uploads. Start it with --upload.")
        return await (self._uploads.take(request) if request.method == "PUT" else self._uploads.tell(request))

    def _check_name(self, name: str) -> None:
        if name not in (self.model, ALIAS):
            raise HTTPException(404, f"There is no model {name[:100]!r} here. Expected {self.model} or {ALIAS}.")

    async def _models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [await self._described(self.model)]})

    async def _model(self, request: Request) -> Response:
        name: str = request.path_params["name"]
        self._check_name(name)
        return JSONResponse(await self._described(name))

    async def _described(self, name: str) -> dict[str, object]:
        own = {"id": name, "object": "model", "created": 0, "owned_by": "evoseek"}
        if self._index is not None:
            await asyncio.to_thread(self._index.look)
        known = await asyncio.to_thread(self._library.describe) if self._library is not None else {}
        documents = {**known, "files": len(self._files)} if self._files else known
        if self._uploads is not None:
            documents = {**documents, "upload": self._uploads.described}
        if self._feedback is not None:
            documents = {**documents, "feedback": "/".join(self._feedback.path.absolute().parts[-2:])}
        return {**own, "evoseek": documents}

    async def _health(self, request: Request) -> Response:
        state = {"index_is_current": self._index.is_current} if self._index is not None else {}
        return JSONResponse({"status": "ok", "model": self.model, **state})

    async def _ready(self, request: Request) -> Response:
        has_room = self._queue.taken < self._queue.most
        return JSONResponse({"status": "ready" if has_room else "busy"}, 200 if has_room else 503)

    async def _metrics(self, request: Request) -> Response:
        return Response(self._queue.metrics, media_type=CONTENT_TYPE_LATEST)


def _streamed(events: AsyncIterator[str]) -> Response:
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


def _document(path: Path, file: BinaryIO) -> Response:
    """Return a file of the corpus, from any author: a browser shows pages without running anything in them, and saves
    other types. The opened file is sent, even if its path was replaced meanwhile."""
    kind = _SHOWN.get(path.suffix.lower())
    headers = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
    if kind != "application/pdf":  # browsers show PDF outside of the page's origin, but not in a sandbox
        headers["Content-Security-Policy"] = "sandbox; default-src 'none'; style-src 'unsafe-inline'"
    return FileResponse(
        f"/dev/fd/{file.fileno()}",
        background=BackgroundTask(file.close),
        headers=headers,
        media_type=kind or "application/octet-stream",
        filename=path.name,
        content_disposition_type="inline" if kind else "attachment",
    )
