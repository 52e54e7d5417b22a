"""Answers of the web that are kept in SQLite files, and the one proxy through which the cache, a recording and a replay
return them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random

from evoseek.errors import ConfigError, RunError, ToolError
from evoseek.files import json_digest
from evoseek.protocols import Fetcher, PageReader, SearchEngine
from evoseek.search.engines import for_each
from evoseek.types import Page, Passage

T = TypeVar("T")

_BUSY_S = 30.0  # seconds to wait for others to finish writing
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_SEAL = 64  # characters of a SHA-256


class Answers(Protocol):
    """The answers to calls: kept ones, or those of the calls."""

    async def answer(self, key: str, call: Callable[[], Awaitable[str]]) -> str:
        """The kept answer of a key, or that of `call`. Raises PageError and ToolError."""
        ...


@dataclass(frozen=True, slots=True)
class StoredWeb:
    """A `SearchEngine`, a `Fetcher` and a `PageReader` whose answers come from `answers`, which calls the given ones
    where it has none. A replay needs none of them, and is then local. Raises as they do, and ToolError."""

    answers: Answers
    engine: SearchEngine | None = None
    fetcher: Fetcher | None = None
    reader: PageReader | None = None

    @property
    def is_local(self) -> bool:
        """Whether the engine and the fetcher are."""
        return all(part is None or part.is_local for part in (self.engine, self.fetcher))

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The engine's results, kept for each query."""

        async def found(query: str) -> list[Passage]:
            async def call() -> str:
                (passages,) = await _connected(self.engine).search([query], k)
                return json.dumps([asdict(passage) for passage in passages])

            answer = await self.answers.answer(f"search {json.dumps([query, k])}", call)
            return [Passage(**fields) for fields in json.loads(answer)]

        return await for_each(queries, found)  # a replay looks up all queries, too

    async def fetch(self, url: str) -> Page:
        """The fetcher's page."""

        async def call() -> str:
            return json.dumps(asdict(await _connected(self.fetcher).fetch(url)))

        return Page(**json.loads(await self.answers.answer(f"page {json.dumps(url)}", call)))

    async def read(self, page: Page, *, task: str, key: str) -> str:
        """The reader's notes."""

        async def call() -> str:
            return await _connected(self.reader).read(page, task=task, key=key)

        return await self.answers.answer(f"reading {json.dumps([page.url, task, key])}", call)


def _connected(part: T | None) -> T:
    if part is None:
        raise ToolError("There is neither a stored answer nor a web to call. Correct the settings of [web].")
    return part


class Store:
    """An SQLite file in WAL mode, each statement outside of `transaction` being a transaction: a process killed at any
    moment, this one included, leaves everything written before intact. WAL needs a disk of this machine: no network
    file system.

    `kind` is four letters that tell this kind of file from others, `schema` makes its tables. Raises ConfigError if
    there is anything else at `path`, RunError if it cannot be opened, read or written.

    SQLite does not notice a changed byte in a row. Answers are trained on, so they are stored with a checksum (`seal`).
    """

    def __init__(self, path: Path, kind: str, schema: str) -> None:
        self.path = path
        with self._explained():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            try:
                self._set_up(int.from_bytes(kind.encode()), schema)
            except BaseException:
                self.close()
                raise

    def _set_up(self, kind: int, schema: str) -> None:
        with self.transaction():  # of several that open a new file, one makes the tables
            ((found,),) = self.rows("PRAGMA application_id")
            if found != kind and self.rows("SELECT 1 FROM sqlite_master"):
                raise ConfigError(
                    f"{self.path} is an SQLite file of something else, or of another version of evoseek. Give the name "
                    "of a new file."
                )
            if (problem := self.rows("PRAGMA integrity_check(1)")) != [("ok",)]:  # a broken tree could loop for ever
                raise sqlite3.DatabaseError(f"it is damaged: {problem[0][0]}")
            self.change(f"PRAGMA application_id = {kind}")
            self.change(schema)
        change_of_mode = Retrying(
            retry=retry_if_exception(_is_busy),  # SQLite waits for no other process with this statement
            stop=stop_after_delay(_BUSY_S),
            wait=wait_random(0.0, 0.05),
            reraise=True,
        )
        change_of_mode(self._database.execute, "PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")

    @contextmanager
    def transaction(self) -> Generator[None]:
        """All that the block reads and writes is one transaction, which no other process's can come between."""
        self.change("BEGIN IMMEDIATE")
        try:
            yield
            self.change("COMMIT")
        finally:
            if self._database.in_transaction:
                self.change("ROLLBACK")

    def rows(self, statement: str, *values: object) -> list[Any]:
        """The rows that a statement selects."""
        with self._explained():
            return self._database.execute(statement, values).fetchall()

    def change(self, statement: str, *values: object) -> int:
        """Run a statement that writes. Returns how many rows it changed."""
        with self._explained():
            return self._database.execute(statement, values).rowcount

    def close(self) -> None:
        """Close the file. The last process to do so leaves a single file, without the companions -wal and -shm."""
        self._database.close()

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise RunError(
                f"{self.path} cannot be used as an SQLite file: {error}. Check the disk and the permissions; if it is "
                "damaged or something else, give the name of a new file."
            ) from error


def _is_busy(error: BaseException) -> bool:
    return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode in _BUSY


def seal(text: str, *place: object) -> str:
    """A text after the checksum of itself and of the other values in its row."""
    return json_digest([text, *place]) + text


def unseal(sealed: object, *place: object) -> str | None:
    """The text, or None if it or the other values are not what was sealed."""
    if not isinstance(sealed, str) or sealed[:_SEAL] != json_digest([sealed[_SEAL:], *place]):
        return None
    return sealed[_SEAL:]
