"""Answers of the web in SQLite files: a cache, so that no query is paid for twice, and the record of a run, to repeat
the run without the web. One proxy, `StoredWeb`, returns them."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random

from evoseek.errors import ConfigError, PageError, RunError, ToolError
from evoseek.protocols import Fetcher, PageReader, SearchEngine
from evoseek.search.calling import for_each
from evoseek.storage.files import json_digest
from evoseek.types import Page, Passage

T = TypeVar("T")
Call = Callable[[], Awaitable[str]]

WEEK_S = 7 * 24 * 3600.0
_BUSY_S = 30.0  # seconds to wait for others to finish writing
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_SEAL = 64  # characters of a SHA-256


class Answers(Protocol):
    """The answers to calls, stored or made."""

    async def answer(self, key: str, call: Call) -> str:
        """Return the stored answer of a key, or make `call`. Raises PageError and ToolError."""
        ...


@dataclass(frozen=True, slots=True)
class StoredWeb:
    """A `SearchEngine`, `Fetcher` and `PageReader` that answers from `answers`, which calls the given ones for missing
    answers. A replay needs none of them, and is then local. Raises as they do, and ToolError."""

    answers: Answers
    engine: SearchEngine | None = None
    fetcher: Fetcher | None = None
    reader: PageReader | None = None

    @property
    def is_local(self) -> bool:
        return all(part is None or part.is_local for part in (self.engine, self.fetcher))

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        async def found(query: str) -> list[Passage]:
            async def call() -> str:
                (passages,) = await _connected(self.engine).search([query], k)
                return json.dumps([asdict(passage) for passage in passages])

            answer = await self.answers.answer(f"search {json.dumps([query, k])}", call)
            return [Passage(**fields) for fields in json.loads(answer)]

        return await for_each(queries, found)  # a replay looks up all queries, too

    async def fetch(self, url: str) -> Page:
        async def call() -> str:
            return json.dumps(asdict(await _connected(self.fetcher).fetch(url)))

        return Page(**json.loads(await self.answers.answer(f"page {json.dumps(url)}", call)))

    async def read(self, page: Page, *, task: str, key: str) -> str:
        async def call() -> str:
            return await _connected(self.reader).read(page, task=task, key=key)

        return await self.answers.answer(f"reading {json.dumps([page.url, task, key])}", call)


def _connected(part: T | None) -> T:
    if part is None:
        raise ToolError("There is neither a stored answer nor a web to call. Correct [web] in the settings.")
    return part


class Cache:
    """A cache that keeps each answer for a week in an SQLite file, which several processes may share. Errors are not
    cached, and a damaged answer counts as missing.

    Concurrent requests for the same answer make a single call and share its outcome. The call is cancelled with the
    last request.

    The key is (provider, options, the call's key): everything that changes an answer must be in it, except secrets.
    """

    def __init__(
        self,
        path: Path,
        *,
        provider: str,
        options: Mapping[str, object] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._of = (provider, dict(options or {}))
        self._store = Store(
            path,
            "evoC",
            "CREATE TABLE IF NOT EXISTS results (key TEXT PRIMARY KEY, until REAL NOT NULL, found TEXT) WITHOUT ROWID",
        )
        self._store.change("DELETE FROM results WHERE until <= ?", clock())
        self._calls: dict[str, asyncio.Task[str]] = {}
        self._waiting = Counter[str]()
        self.close = self._store.close

    async def answer(self, key: str, call: Call) -> str:
        key = json.dumps([*self._of, key], sort_keys=True)
        if (kept := self._kept(key)) is not None:
            return kept
        task = self._calls.get(key)
        if task is None:
            task = self._calls[key] = asyncio.create_task(self._called(key, call))
        self._waiting[key] += 1
        try:
            return await asyncio.shield(task)
        finally:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                task.cancel()  # unless it has ended
                del self._calls[key], self._waiting[key]

    async def _called(self, key: str, call: Call) -> str:
        found, until = await call(), self._clock() + WEEK_S
        row = (key, until, seal(found, key, until))
        self._store.change("INSERT OR REPLACE INTO results VALUES (?, ?, ?)", *row)
        return found

    def _kept(self, key: str) -> str | None:
        """Return the answer of a key, unless missing, too old or damaged."""
        rows = self._store.rows("SELECT until, found FROM results WHERE key = ?", key)
        text = unseal(rows[0][1], key, rows[0][0]) if rows else None
        return text if text is not None and rows[0][0] > self._clock() else None


_MADE_WITH = "made with"  # the key of the settings of a record; no other key begins like this
_ERRORS: dict[str, type[PageError | ToolError]] = {"page": PageError, "tool": ToolError}


class Recording:
    """A recording of the answers that a run gets from the web and the reader, in an SQLite file.

    A recorded answer (a PageError is an answer) is reused for the rest of the run, also after resuming. Failures
    (ToolError) are recorded by number: the n-th call of a key fails in a replay if the n-th call failed in the run. So
    the same rollouts fail if all calls come in the same order, as with a lockstep sampler; for a resumed run, or with
    several processes, other rollouts may fail. Cancelled calls are not recorded.

    `made_with` are the settings that determine the answers. Raises ConfigError for a file begun with other settings,
    whose answers would be wrong here.
    """

    def __init__(self, path: Path, made_with: Mapping[str, object]) -> None:
        self._store = _record_store(path)
        self._calls, self.close = Counter[str](), self._store.close
        try:
            self._check(made_with)
        except ConfigError:
            self.close()
            raise

    async def answer(self, key: str, call: Call) -> str:
        """Return the recorded answer, or make `call`. Raises PageError and ToolError, as `call` does."""
        number, self._calls[key] = self._calls[key], self._calls[key] + 1
        if not (answered := self._answered(key)):
            error, text = await _outcome(call)
            if error == "tool" or not (answered := self._answered(key)):  # unless a concurrent call was first
                self._write(key, number, error, text)
                return _result(error, text)
        return _result(*answered)

    def _write(self, key: str, number: int, error: str | None, text: str) -> None:
        """Write an answer under its number, or after all others if an earlier run or another process used the
        number."""
        with self._store.transaction():
            numbers = [row[0] for row in self._store.rows("SELECT number FROM answers WHERE key = ?", key)]
            number = max(numbers) + 1 if number in numbers else number
            _insert(self._store, key, number, error, json.dumps(text))

    def _check(self, made_with: Mapping[str, object]) -> None:
        now = json.loads(json.dumps(made_with))
        with self._store.transaction():
            if not self._store.rows("SELECT 1 FROM answers LIMIT 1"):
                _insert(self._store, _MADE_WITH, 0, None, json.dumps(now))
        found = _rows(self._store, _MADE_WITH)
        before = json.loads(found[0][2]) if found else {}
        if other := next((name for name in now if before.get(name) != now[name]), None):
            raise ConfigError(
                f"The record {self._store.path} was begun with {other} = {before.get(other)!r}, now it is "
                f"{now[other]!r}, so its answers do not fit. Give web.record another file, or leave web.record empty "
                "to record nothing.",
                code="web.record_other_settings",
            )

    def _answered(self, key: str) -> tuple[str | None, str] | None:
        answers = ((error, json.loads(text)) for _, error, text in _rows(self._store, key) if error != "tool")
        return next(answers, None)


class Replay:
    """A replay of a recorded run, which awaits nothing. Raises ConfigError without a record at `path`, RunError if any
    row is damaged: a failure with a changed key would never be missed."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise ConfigError(
                f"There is no record of a run at {path}. Record one first, or correct the path.", code="web.no_record"
            )
        self._path, self._store = path, _record_store(path)
        self._calls, self.close = Counter[str](), self._store.close
        try:
            for row in self._store.rows("SELECT key, number, error, said FROM answers"):
                _unsealed(self._store, *row)
        except RunError:
            self.close()
            raise

    async def answer(self, key: str, call: Call) -> str:
        """Return the recorded answer; `call` is not made. Raises PageError and ToolError as recorded, and ToolError for
        a call that is not in the record."""
        rows = sorted(_rows(self._store, key), key=lambda row: row[1] == "tool")  # answers before failures
        if not rows:
            raise ToolError(
                f"The record {self._path} has no answer to {key}. Replay the recorded run with the same "
                "settings, or record this run.",
                code="web.not_recorded",
            )
        number, self._calls[key] = self._calls[key], self._calls[key] + 1
        _, error, text = next((row for row in rows if row[0] == number), rows[0])
        return _result(error, json.loads(text))


def _insert(store: Store, key: str, number: int, error: str | None, text: str) -> None:
    sealed = seal(text, key, number, error)
    store.change("INSERT INTO answers VALUES (?, ?, ?, ?)", key, number, error, sealed)


def _rows(store: Store, key: str) -> list[tuple[int, str | None, str]]:
    """Return number, error and text of all records for a key, by number. Raises RunError if any is damaged."""
    rows = store.rows("SELECT number, error, said FROM answers WHERE key = ? ORDER BY number", key)
    return [(number, error, _unsealed(store, key, number, error, sealed)) for number, error, sealed in rows]


def _unsealed(store: Store, key: str, number: int, error: str | None, sealed: object) -> str:
    text = unseal(sealed, key, number, error)
    if text is None:
        raise RunError(
            f"The record {store.path} is damaged: its answer to {key} is not what was written. Restore the file "
            "from a copy, or record the run again into a new one."
        )
    return text


def _record_store(path: Path) -> Store:
    return Store(
        path,
        "evR2",
        "CREATE TABLE IF NOT EXISTS answers (key TEXT, number INTEGER, error TEXT, said TEXT NOT NULL, "
        "PRIMARY KEY (key, number)) WITHOUT ROWID",
    )


async def _outcome(call: Call) -> tuple[str | None, str]:
    """Return the kind of error that a call raises, if any, and the error's text or the call's result."""
    try:
        return None, await call()
    except PageError as error:
        return "page", str(error)
    except ToolError as error:
        return "tool", str(error)


def _result(error: str | None, text: str) -> str:
    if error is not None:
        raise _ERRORS[error](text)
    return text


class Store:
    """An SQLite file in WAL mode. Each statement outside of `transaction` is a transaction: whenever this or another
    process is killed, everything written before stays intact. WAL needs a local disk, not a network file system.

    `kind` is four letters that identify this kind of file, `schema` makes its tables. Raises ConfigError if `path`
    holds anything else, RunError if it cannot be opened, read or written.

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
        with self.transaction():  # if several open a new file, one makes the tables
            ((found,),) = self.rows("PRAGMA application_id")
            if found != kind and self.rows("SELECT 1 FROM sqlite_master"):
                raise ConfigError(
                    f"{self.path} is an SQLite file of another program or another version of evoseek. Give the name of "
                    "a new file.",
                    code="web.foreign_file",
                )
            if (problem := self.rows("PRAGMA integrity_check(1)")) != [("ok",)]:  # a broken tree could loop forever
                raise sqlite3.DatabaseError(f"it is damaged: {problem[0][0]}")
            self.change(f"PRAGMA application_id = {kind}")
            self.change(schema)
        change_of_mode = Retrying(
            retry=retry_if_exception(_is_busy),  # for this statement SQLite does not wait for other processes
            stop=stop_after_delay(_BUSY_S),
            wait=wait_random(0.0, 0.05),
            reraise=True,
        )
        change_of_mode(self._database.execute, "PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Make the block one transaction, which no other process can interrupt."""
        self.change("BEGIN IMMEDIATE")
        try:
            yield
            self.change("COMMIT")
        finally:
            if self._database.in_transaction:
                self.change("ROLLBACK")

    def rows(self, statement: str, *values: object) -> list[Any]:
        with self._explained():
            return self._database.execute(statement, values).fetchall()

    def change(self, statement: str, *values: object) -> int:
        """Run a statement that writes; return the number of changed rows."""
        with self._explained():
            return self._database.execute(statement, values).rowcount

    def close(self) -> None:
        """Close the file. The last process to do so removes the companions -wal and -shm."""
        self._database.close()

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise RunError(
                f"{self.path} cannot be used as an SQLite file: {error}. Check the disk and the permissions. If the "
                "file is damaged or of another kind, give the name of a new file.",
                code="web.broken_file",
            ) from error


def _is_busy(error: BaseException) -> bool:
    return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode in _BUSY


def seal(text: str, *place: object) -> str:
    """Return the text, prefixed by the checksum of the text and the other values in its row."""
    return json_digest([text, *place]) + text


def unseal(sealed: object, *place: object) -> str | None:
    """Return the text, or None if the text or the other values were changed."""
    if not isinstance(sealed, str) or sealed[:_SEAL] != json_digest([sealed[_SEAL:], *place]):
        return None
    return sealed[_SEAL:]
