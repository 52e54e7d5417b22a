"""What the keys of a server see: each key has an answerer, a library, files and tools of MCP, all over its part of one
index."""

from __future__ import annotations

from asyncio import to_thread
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from anyio import create_task_group, sleep_forever
from anyio.abc import TaskGroup, TaskStatus
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from evoseek.agent.answer import Answered, Answerer
from evoseek.errors import ConfigError, DataError
from evoseek.protocols import SearchEngine
from evoseek.search.opening import LiveIndex
from evoseek.search.sources import FileOrigin, is_in
from evoseek.serve.answer_queue import Worker
from evoseek.serve.keys import Key, key_of
from evoseek.serve.mcp import Library, mcp_server

_FOLDERS = 200
_NARROWED = 100  # readers of a folder that are kept
_CHECKED_BEFORE = TransportSecuritySettings(enable_dns_rebinding_protection=False)  # by the Guard


AskFor = Callable[[Key, str], Awaitable[Answered]]


@dataclass(frozen=True, slots=True)
class AnswerSource:
    """What a server answers from: `answerer_for` answers by searches of an engine, `engine` sees everything (None:
    nothing can be searched). `close` ends it, once it answers no more."""

    answerer_for: Callable[[SearchEngine | None], Answerer]
    engine: SearchEngine | None
    close: Callable[[], object] = lambda: None

    def seen_by(self, key: Key) -> SearchEngine | None:
        """Return what a key may search. ConfigError if that is not everything, and the engine is no index."""
        if key.folders is None:
            return self.engine
        if not isinstance(self.engine, LiveIndex):
            raise ConfigError(
                f"The key {key.name} may see {', '.join(key.folders)} alone, but this server does not search an index "
                "of `evoseek index`. Serve one, or leave out the key's folders."
            )
        return self.engine.within(key.folders)


@dataclass(slots=True)
class KeyReader:
    """What a key sees. A newer `answerer` replaces the one before."""

    answerer: Answerer
    engine: SearchEngine | None
    library: Library | None
    mcp: Starlette

    @property
    def files(self) -> Mapping[str, FileOrigin]:
        return self.engine.files if isinstance(self.engine, LiveIndex) else {}

    @property
    def folders(self) -> list[str]:
        """The folders of the files, at most 200."""
        parts = (file.split("/") for file in self.files)
        return sorted({"/".join(names[:end]) for names in parts for end in range(1, len(names))})[:_FOLDERS]

    async def live(self, *, task_status: TaskStatus[None]) -> None:
        """Run the tools of MCP until the task is cancelled."""
        async with self.mcp.router.lifespan_context(self.mcp):
            task_status.started()
            await sleep_forever()


class Readers:
    """The readers of a server, by their keys. `ask` answers a question for a key by its answerer."""

    def __init__(self, source: AnswerSource, worker: Worker, ask: AskFor, examples: Sequence[str]) -> None:
        self.source, self._worker, self._ask, self._examples = source, worker, ask, examples
        self._readers, self._narrowed = dict[Key, KeyReader](), OrderedDict[Key, KeyReader]()
        self._running: TaskGroup | None = None

    def __getitem__(self, key: Key) -> KeyReader:
        return self._readers[key]

    def within(self, key: Key, folder: str) -> KeyReader:
        """Return what a key sees in a folder of the documents ("": all that it sees). Raises DataError if it sees
        nothing there."""
        reader, folder = self._readers[key], folder.strip("/")
        if not folder:
            return reader
        if not any(is_in(file, [folder]) for file in reader.files):
            raise DataError(f"There is no document in the folder {folder[:100]!r}. Leave it out, or see `folders`.")
        is_whole = key.folders is None or is_in(folder, key.folders)
        both = (folder,) if is_whole else tuple(one for one in key.folders or () if is_in(one, [folder]))
        narrow = key.model_copy(update={"folders": both})
        kept = self._narrowed[narrow] = self._narrowed.pop(narrow, None) or self._reader(narrow)
        if len(self._narrowed) > _NARROWED:
            self._narrowed.popitem(last=False)
        return kept

    def add(self, keys: Sequence[Key]) -> list[KeyReader]:
        """Add readers for the keys that have none yet, and return these. Raises ConfigError, and then adds none."""
        made = {key: self._reader(key) for key in keys if key not in self._readers}
        self._readers |= made
        return list(made.values())

    @asynccontextmanager
    async def living(self) -> AsyncGenerator[None]:
        """Run the tools of MCP of every reader in the block."""
        async with create_task_group() as self._running:
            for reader in self._readers.values():
                await self._running.start(reader.live)
            yield
            self._running.cancel_scope.cancel()

    async def add_living(self, keys: Sequence[Key]) -> None:
        """Add readers as `add`, in the block of `living`."""
        for reader in self.add(keys):
            if self._running is not None:
                await self._running.start(reader.live)

    async def replace(self, source: AnswerSource) -> None:
        """Answer from another source from now on, over the same engines."""
        readers = [*self._readers.values()]
        made = await to_thread(lambda: [source.answerer_for(reader.engine) for reader in readers])
        for reader, answerer in zip(readers, made, strict=True):
            reader.answerer = answerer
        self.source = source
        self._narrowed.clear()  # also those that were made meanwhile

    def _reader(self, key: Key) -> KeyReader:
        async def ask(question: str) -> Answered:
            return await self._ask(key, question)

        engine = self.source.seen_by(key)
        examples = self._examples if key.folders is None else ()  # they may be about other folders
        library = Library(engine, self._worker.run, examples) if engine is not None else None
        mcp = mcp_server(library, ask).streamable_http_app(
            stateless_http=True, json_response=True, transport_security=_CHECKED_BEFORE
        )
        return KeyReader(self.source.answerer_for(engine), engine, library, mcp)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the key's tools of MCP, as an ASGI application."""
        await self[key_of(scope)].mcp(scope, receive, send)


def check_sees_all(request: Request) -> None:
    """Raise HTTPException for a key that may not see everything."""
    if key_of(request).folders is not None:
        raise HTTPException(403, "This key may see some folders alone. This page is for keys that see everything.")
