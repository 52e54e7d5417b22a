"""The agent server: a chat page, OpenAI's chat completions and the Model Context Protocol, over one agent.

    POST /v1/chat/completions   as in `serve.chat_api`, whole or as a stream
    GET  /v1/models[/{name}]    the agent, as a model
    GET  /v1/files/{file}       a document, by its path within the corpus
    POST /v1/feedback           a verdict on an answer, if the server keeps them
    POST /mcp                   as in `serve.mcp`
    GET  /                      the chat page
    GET  /health /ready         whether the server lives; whether it has room for a question
    GET  /metrics /log /v1/log  numbers for Prometheus; what was asked (`questions.asked`): for keys that see everything

If the queue is full, a question gets 429 with Retry-After. A client that leaves ends its rollout. A key sees what its
`KeyReader` has, and nothing else. SIGHUP reads the keys again and loads the newest checkpoint.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from evoseek.agent.answer import Answered
from evoseek.errors import ConfigError, DataError, RunError
from evoseek.questions.asked import Asked, AskedLog
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
from evoseek.serve.keys import EVERYBODY, Key, key_of
from evoseek.serve.mcp import Library
from evoseek.serve.readers import AnswerSource, Readers, check_sees_all
from evoseek.serve.uploads import Uploads
from evoseek.text.scripts import well_formed

_SHOWN = {".pdf": "application/pdf", ".html": "text/html", ".htm": "text/html"} | dict.fromkeys(
    (".txt", ".md", ".rst", ".org", ".csv", ".tsv"), "text/plain"
)
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
    """The agent server, with the ASGI application `app`. `keys` are the valid keys, `host` the address to listen at,
    `names` its further names. `feedback` keeps conversations with a verdict (None: not kept), `asked` what was asked.
    The chat page suggests the questions `examples`. `uploads` takes new documents (None: none are taken). `load` gives
    a newer source (None: there is none), and the keys. `queue` has the questions under way; `loop` is None until the
    server runs."""

    def __init__(
        self,
        source: AnswerSource,
        *,
        limits: AgentServerLimits | None = None,
        keys: Sequence[Key] = (),
        host: str = "127.0.0.1",
        names: Collection[str] = (),
        feedback: FeedbackFile | None = None,
        asked: AskedLog | None = None,
        examples: Sequence[str] = (),
        uploads: Uploads | None = None,
        load: Callable[[], tuple[AnswerSource | None, Sequence[Key]]] | None = None,
    ) -> None:
        self._limits, self._host, self._load = limits or AgentServerLimits(), host, load
        self._worker, self._asked, self._reloading = Worker(), asked, asyncio.Lock()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._uploads = uploads
        self._feedback, self._answers = feedback, OrderedDict[str, tuple[Key, Feedback]]()
        self.queue = AnswerQueue(
            self._worker,
            running=self._limits.running,
            waiting=self._limits.waiting,
            ended=self._ended if asked else None,
        )
        self.readers = Readers(source, self._worker, self._ask_alone, examples)
        self.readers.add(keys or [EVERYBODY])
        self.model = Path(self.readers[(keys or [EVERYBODY])[0]].answerer.name).name or ALIAS
        app = Starlette(
            routes=self._routes(),
            exception_handlers={HTTPException: refused},
            lifespan=self._living,
        )
        attended = CancelOnDisconnect(app, max_body=self._limits.max_body)
        self.app = self._guard = Guard(attended, keys=keys, host=host, names=names)

    def run(self, port: int, *, started: Callable[[str], None] = lambda url: None) -> None:
        """Serve as `listen` does; unfinished answers are then cancelled, and their clients get an error."""
        signal.signal(signal.SIGHUP, self._reload_soon)
        listen(self.stoppable(), self._host, port, started=started)

    def stoppable(self) -> StoppableServer:
        return StoppableServer(self.app, drain_s=self._limits.drain_s, end=self.queue.stop)

    def _routes(self) -> list[BaseRoute]:
        return [
            Route("/", page_of("index.html")),
            *(Route(f"/{name}", page_of(name)) for name in PAGE_FILES),
            Route("/health", self._health),
            Route("/ready", self._ready),
            Route("/metrics", self._metrics),
            Route("/log", page_of("log.html")),
            Route("/v1/log", self._log),
            Route("/v1/models", self._models),
            Route("/v1/models/{name:path}", self._model),
            Route(f"/{FILES}/{{file:path}}", self._file),
            *document_routes(self._seen),
            Route("/v1/uploads", self._upload),
            Route("/v1/uploads/{name:path}", self._upload, methods=["PUT"]),
            Route("/v1/chat/completions", self._complete, methods=["POST"]),
            Route("/v1/feedback", self._judge, methods=["POST"]),
            Route("/mcp", self.readers, methods=["POST"]),
        ]

    @asynccontextmanager
    async def _living(self, app: Starlette) -> AsyncGenerator[None]:
        self._worker.start()
        self.loop = asyncio.get_running_loop()
        try:
            async with self.readers.living():
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
            key = key_of(request)
            reader = self.readers.within(key, wanted.folder)
            pending = self.queue.ask(reader.answerer, wanted.question, wanted.history, by=key.name)
            if self._feedback is not None:
                pending.task.add_done_callback(partial(self._remember, pending.id, key))
            if wanted.stream:
                return _streamed(stream(pending, wanted, reader.files))
            return JSONResponse(await self._reply(pending, wanted, reader.files))
        except HTTPException:
            raise
        except Exception as error:  # from any model or tool
            headers = {"Retry-After": _RETRY_S} if isinstance(error, BusyError) else None
            raise HTTPException(*status_of(error), headers) from error

    async def _reply(self, pending: PendingAnswer, wanted: ChatRequest, files: Collection[str]) -> Mapping[str, object]:
        answered = await pending.answered()
        if failure := answered.trajectory.failure:
            raise HTTPException(502, f"The question could not be answered: {failure}")
        return completion(pending, answered, wanted, files)

    def _remember(self, id: str, key: Key, task: asyncio.Task[Answered]) -> None:
        """Keep an answer, for a later verdict, in place of the oldest one."""
        if not task.cancelled() and task.exception() is None and not task.result().trajectory.failure:
            self._answers[id] = key, judgeable(id, task.result())
            if len(self._answers) > _JUDGEABLE:
                self._answers.popitem(last=False)

    async def _judge(self, request: Request) -> Response:
        if self._feedback is None:
            raise HTTPException(404, "This server keeps no feedback. Start it with --feedback.")
        try:
            wanted = read_feedback(await request.body())
        except DataError as error:
            raise HTTPException(400, str(error)) from error
        key, answer = self._answers.get(wanted.id, (None, None))
        if key is None or answer is None or key.name != key_of(request).name:
            text = f"The id {wanted.id[:100]!r} is of none of the last {_JUDGEABLE:,} answers since the server started."
            raise HTTPException(404, f"{text} Ask again to judge the answer.")
        try:
            await asyncio.to_thread(self._feedback.add, wanted.over(answer))
        except RunError as error:
            raise HTTPException(507, str(error)) from error
        return JSONResponse({"id": wanted.id, "verdict": wanted.verdict})

    def _ended(self, by: str, question: str, id: str, outcome: str, seconds: float, answered: Answered | None) -> None:
        asked = Asked(by, id, outcome, round(seconds, 3), question)
        if answered is not None:
            cited = tuple(passage.id for passage in answered.support.passages) if answered.answer else ()
            searches = len(answered.trajectory.results)
            asked = replace(asked, searches=searches, answer=answered.answer, citations=cited)
        if self._asked is not None:
            self._asked.add(asked)

    async def _ask_alone(self, key: Key, question: str) -> Answered:
        """Answer a question without a conversation. Raises BusyError, and EvoseekError if there is no answer."""
        answerer = self.readers[key].answerer
        return await self.queue.ask(answerer, well_formed(question).strip(), by=key.name).answered()

    def _reload_soon(self, number: int, frame: object) -> None:
        if self.loop is not None:
            asyncio.run_coroutine_threadsafe(self.reload(), self.loop)

    async def reload(self) -> None:
        """Read the keys again and load the newest checkpoint. Questions under way are answered as they began. If that
        fails, it is logged, and nothing changes."""
        if self._load is None or self._reloading.locked():
            return
        async with self._reloading:
            await self._reload(self._load)

    async def _reload(self, load: Callable[[], tuple[AnswerSource | None, Sequence[Key]]]) -> None:
        source = None
        try:
            source, keys = await asyncio.to_thread(load)
            if self._guard.keys and not keys:
                raise ConfigError("There is no key any more, which would let everybody in.")
            await self.readers.add_living(keys)
            before = self.readers.source
            if source is not None:
                await self.readers.replace(source)
        except Exception as error:  # also of a model that cannot be loaded
            _LOG.error("Nothing was reloaded: %s", error)
            if source is not None:
                await asyncio.to_thread(source.close)
            return
        self._guard.keys = keys
        _LOG.warning("Reloaded: %s keys, %s.", len(keys), "a new checkpoint" if source else "the same checkpoint")
        if source is not None:
            await self.queue.idle()
            await asyncio.to_thread(before.close)

    async def _file(self, request: Request) -> Response:
        origin = self.readers[key_of(request)].files.get(request.path_params["file"])
        file = await asyncio.to_thread(origin.opened) if origin else None
        if origin is None or file is None:
            raise HTTPException(404, "The index was built from no such file, or the file was changed or moved since.")
        return _document(origin.path, file)

    async def _upload(self, request: Request) -> Response:
        check_sees_all(request)  # names that are taken tell of other folders
        if self._uploads is None:
            raise HTTPException(404, "This server takes no uploads. Start it with --upload.")
        return await (self._uploads.take(request) if request.method == "PUT" else self._uploads.tell(request))

    def _seen(self, request: Request) -> tuple[Library | None, Mapping[str, FileOrigin]]:
        reader = self.readers[key_of(request)]
        return reader.library, reader.files

    def _check_name(self, name: str) -> None:
        if name not in (self.model, ALIAS):
            raise HTTPException(404, f"There is no model {name[:100]!r} here. Expected {self.model} or {ALIAS}.")

    async def _models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [await self._described(self.model, key_of(request))]})

    async def _model(self, request: Request) -> Response:
        name: str = request.path_params["name"]
        self._check_name(name)
        return JSONResponse(await self._described(name, key_of(request)))

    async def _described(self, name: str, key: Key) -> dict[str, object]:
        own, reader = {"id": name, "object": "model", "created": 0, "owned_by": "evoseek"}, self.readers[key]
        if isinstance(reader.engine, LiveIndex):
            await asyncio.to_thread(reader.engine.look)
        known = await asyncio.to_thread(reader.library.describe) if reader.library is not None else {}
        documents = {**known, "files": len(files), "folders": reader.folders} if (files := reader.files) else known
        if self._uploads is not None and key.folders is None:
            documents = {**documents, "upload": self._uploads.described}
        if self._feedback is not None:
            documents = {**documents, "feedback": "/".join(self._feedback.path.absolute().parts[-2:])}
        return {**own, "evoseek": documents}

    async def _health(self, request: Request) -> Response:
        index = self.readers.source.engine
        state = {"index_is_current": index.is_current} if isinstance(index, LiveIndex) else {}
        return JSONResponse({"status": "ok", "model": self.model, **state})

    async def _ready(self, request: Request) -> Response:
        has_room = self.queue.taken < self.queue.most
        return JSONResponse({"status": "ready" if has_room else "busy"}, 200 if has_room else 503)

    async def _metrics(self, request: Request) -> Response:
        check_sees_all(request)
        return Response(self.queue.metrics, media_type=CONTENT_TYPE_LATEST)

    async def _log(self, request: Request) -> Response:
        check_sees_all(request)
        if self._asked is None:
            raise HTTPException(404, "This server does not log what was asked. Start it with --log.")
        try:
            verdicts = await asyncio.to_thread(self._feedback.read) if self._feedback is not None else []
            return JSONResponse(await asyncio.to_thread(self._asked.overview, verdicts))
        except DataError as error:  # a damaged file
            raise HTTPException(500, str(error)) from error


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
