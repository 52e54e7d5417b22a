"""Record and replay: the answers that a run got from the web and from the reader, so that it can be repeated without
them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from evoseek.errors import ConfigError, PageError, RunError, ToolError
from evoseek.protocols import Fetcher, PageReader, SearchEngine
from evoseek.search.web.gathering import for_each
from evoseek.search.web.store import Store, from_text, to_text, unseal
from evoseek.types import Page, Passage

_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS answers (key TEXT, number INTEGER, error TEXT, said TEXT NOT NULL, "
    "PRIMARY KEY (key, number)) WITHOUT ROWID"
)
_INSERT = (  # under its number, or after all others if an earlier run or another process has used that
    "INSERT INTO answers SELECT ?1, free, ?3, seal(?4, ?1, free, ?3) FROM (SELECT "
    "iif(count(*) FILTER (WHERE number = ?2), max(number) + 1, ?2) AS free FROM answers WHERE key = ?1)"
)
_BEGIN = "INSERT INTO answers SELECT ?1, 0, NULL, seal(?2, ?1, 0, NULL) WHERE NOT EXISTS (SELECT * FROM answers)"
_KIND = "evR2"
_MADE_WITH = "made with"  # the key of the settings; no other key begins like this
_ERRORS: dict[str, type[PageError | ToolError]] = {"page": PageError, "tool": ToolError}


class Recording:
    """Records the answers that a run gets, in an SQLite file.

    A recorded answer (a PageError is an answer) is reused for the rest of the run, also after it was resumed. Failures
    (ToolError) are recorded by their number: the n-th call of a key fails in a replay if the n-th call failed in the
    run. So the same rollouts fail if all calls are made in the same order, which a lockstep sampler ensures; after a
    resumed run, or with several processes, other rollouts may fail. Cancelled calls are not recorded.

    `made_with` are the settings that determine the answers. Raises ConfigError for a file that was begun with other
    settings, or has answers but no settings: their answers would be mistaken for those of these settings.
    """

    def __init__(self, path: Path, made_with: Mapping[str, object] | None = None) -> None:
        self._store = Store(path, _KIND, _SCHEMA)
        self._asked: Counter[str] = Counter()
        if made_with is not None:
            self._check(json.dumps(made_with))

    def close(self) -> None:
        """Close the file."""
        self._store.close()

    async def answer(self, key: str, call: Callable[[], Awaitable[str]]) -> str:
        """The result of `call`, or the recorded one. Raises PageError and ToolError, as `call` does."""
        number, self._asked[key] = self._asked[key], self._asked[key] + 1
        if not (answered := self._answered(key)):
            error, said = await _outcome(call)
            if error == "tool" or not (answered := self._answered(key)):  # a concurrent call may have been first
                self._store.change(_INSERT, key, number, error, json.dumps(said))
                return _given(error, said)
        error, said = answered
        return _given(error, said)

    def _check(self, made_with: str) -> None:
        self._store.change(_BEGIN, _MADE_WITH, made_with)
        found = _rows(self._store, _MADE_WITH)
        if not found:
            self.close()
            raise ConfigError(
                f"The record {self._store.path} has answers, but does not say with which settings it was made: they "
                "may differ from the current ones. Give web.record another file, or leave it empty to record nothing; "
                "web.replay can still repeat this one."
            )
        before, now = json.loads(found[0][2]), json.loads(made_with)
        if other := next((name for name in now if before.get(name) != now[name]), None):
            self.close()
            raise ConfigError(
                f"The record {self._store.path} was begun with {other} = {before.get(other)!r}, now it is "
                f"{now[other]!r}: calls would get the answers of then. Give web.record another file, or leave it empty "
                "to record nothing."
            )

    def _answered(self, key: str) -> tuple[str | None, str] | None:
        """The first recorded answer, if any."""
        answers = ((error, json.loads(said)) for _, error, said in _rows(self._store, key) if error != "tool")
        return next(answers, None)


class Replay:
    """Returns the answers of a recorded run, without awaiting anything. Raises ConfigError if there is no record at
    `path`, RunError if any row of it is damaged: a failure whose key was changed would never be missed."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise ConfigError(f"There is no record of a run at {path}. Record one first, or correct the path.")
        self._path, self._store = path, Store(path, _KIND, _SCHEMA)
        self._asked: Counter[str] = Counter()
        try:
            for row in self._store.rows("SELECT key, number, error, said FROM answers"):
                _unsealed(self._store, *row)
        except RunError:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._store.close()

    def answer(self, key: str) -> str:
        """The recorded answer. Raises PageError and ToolError as recorded, and ToolError for a call that is not in the
        record."""
        rows = sorted(_rows(self._store, key), key=lambda row: row[1] == "tool")  # answers before failures
        if not rows:
            raise ToolError(
                f"The record {self._path} has no answer to {key}. Replay the run that was recorded, with the same "
                "settings, or record this one."
            )
        number, self._asked[key] = self._asked[key], self._asked[key] + 1
        _, error, said = next((row for row in rows if row[0] == number), rows[0])
        return _given(error, json.loads(said))


@dataclass(frozen=True, slots=True)
class RecordingEngine:
    """A `SearchEngine` whose results are recorded."""

    engine: SearchEngine
    recording: Recording

    @property
    def is_local(self) -> bool:
        """As for the engine."""
        return self.engine.is_local

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The engine's results, or the recorded ones. Raises ToolError."""

        async def found(query: str) -> list[Passage]:
            async def call() -> str:
                return to_text((await self.engine.search([query], k))[0])

            return from_text(await self.recording.answer(_search_key(query, k), call))

        return await for_each(queries, found)


@dataclass(frozen=True, slots=True)
class ReplayEngine:
    """A `SearchEngine` that returns the results of a recorded run."""

    replay: Replay
    is_local = True

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The recorded results. Raises ToolError."""

        async def found(query: str) -> list[Passage]:
            return from_text(self.replay.answer(_search_key(query, k)))

        return await for_each(queries, found)  # all queries are looked up, as in the recorded run


@dataclass(frozen=True, slots=True)
class RecordingFetcher:
    """A `Fetcher` whose pages are recorded."""

    fetcher: Fetcher
    recording: Recording

    @property
    def is_local(self) -> bool:
        """As for the fetcher."""
        return self.fetcher.is_local

    async def fetch(self, url: str) -> Page:
        """The page, or the recorded one. Raises PageError or ToolError."""

        async def call() -> str:
            return json.dumps(asdict(await self.fetcher.fetch(url)))

        return Page(**json.loads(await self.recording.answer(_page_key(url), call)))


@dataclass(frozen=True, slots=True)
class ReplayFetcher:
    """A `Fetcher` that opens pages as they were opened in a recorded run."""

    replay: Replay
    is_local = True

    async def fetch(self, url: str) -> Page:
        """The page. Raises PageError or ToolError."""
        return Page(**json.loads(self.replay.answer(_page_key(url))))


@dataclass(frozen=True, slots=True)
class RecordingReader:
    """A `PageReader` whose notes are recorded."""

    reader: PageReader
    recording: Recording

    async def read(self, page: Page, *, task: str, key: str) -> str:
        """The reader's notes, or the recorded ones. Raises ToolError."""

        async def call() -> str:
            return await self.reader.read(page, task=task, key=key)

        return await self.recording.answer(_reading_key(page, task, key), call)


@dataclass(frozen=True, slots=True)
class ReplayReader:
    """A `PageReader` that returns the notes of a recorded run."""

    replay: Replay

    async def read(self, page: Page, *, task: str, key: str) -> str:
        """The recorded notes. Raises ToolError."""
        return self.replay.answer(_reading_key(page, task, key))


def _rows(store: Store, key: str) -> list[tuple[int, str | None, str]]:
    """Number, error and text of all records for a key, by number. Raises RunError if any is damaged."""
    rows = store.rows("SELECT number, error, said FROM answers WHERE key = ? ORDER BY number", key)
    return [(number, error, _unsealed(store, key, number, error, sealed)) for number, error, sealed in rows]


def _unsealed(store: Store, key: str, number: int, error: str | None, sealed: object) -> str:
    said = unseal(sealed, key, number, error)
    if said is None:
        raise RunError(
            f"The record {store.path} is damaged: what it says of {key} is not what was written. Restore the file "
            "from a copy, or record the run again into a new one."
        )
    return said


async def _outcome(call: Callable[[], Awaitable[str]]) -> tuple[str | None, str]:
    """The result of a call, or the error that it raises."""
    try:
        return None, await call()
    except PageError as error:
        return "page", str(error)
    except ToolError as error:
        return "tool", str(error)


def _given(error: str | None, said: str) -> str:
    if error is not None:
        raise _ERRORS[error](said)
    return said


def _search_key(query: str, k: int) -> str:
    return f"search {json.dumps([query, k])}"


def _page_key(url: str) -> str:
    return f"page {json.dumps(url)}"


def _reading_key(page: Page, task: str, key: str) -> str:
    return f"reading {json.dumps([page.url, task, key])}"
