"""Record and replay: what a run was told by the web and by who read it, so that it can be repeated without them."""

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
_INSERT = (  # under its number, or behind all others if an earlier run or another process took that
    "INSERT INTO answers SELECT ?1, free, ?3, seal(?4, ?1, free, ?3) FROM (SELECT "
    "iif(count(*) FILTER (WHERE number = ?2), max(number) + 1, ?2) AS free FROM answers WHERE key = ?1)"
)
_BEGIN = "INSERT INTO answers SELECT ?1, 0, NULL, seal(?2, ?1, 0, NULL) WHERE NOT EXISTS (SELECT * FROM answers)"
_KIND = "evR2"
_MADE_WITH = "made with"  # the key of the settings; no question begins so
_ERRORS: dict[str, type[PageError | ToolError]] = {"page": PageError, "tool": ToolError}


class Recording:
    """Takes down what a run is told, in an SQLite file.

    What was answered (a PageError is an answer) is answered so for the rest of the run, and not asked for again, also
    when the run is gone on with. Failures (ToolError) are taken down by their number: a replay fails the n-th time that
    something is asked for, if the n-th time failed. So it fails whom the run failed if all is asked for in the same
    order, as a sampler in step sees to; after a run that was gone on with, or several processes, it may be others.
    Calls that are cancelled leave no trace.

    `made_with` are the settings that decide what is answered. Raises ConfigError for a file that was begun with others,
    or has answers and does not say with which: what they were told would be taken for what these are told.
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
        """What `call` gives, or gave before. Raises PageError and ToolError, as it does."""
        number, self._asked[key] = self._asked[key], self._asked[key] + 1
        if not (answered := self._answered(key)):
            error, said = await _outcome(call)
            if error == "tool" or not (answered := self._answered(key)):  # another one may have been answered first
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
                "may be others than now. Give web.record another file, or leave it empty to take nothing down; "
                "web.replay can still repeat this one."
            )
        before, now = json.loads(found[0][2]), json.loads(made_with)
        if other := next((name for name in now if before.get(name) != now[name]), None):
            self.close()
            raise ConfigError(
                f"The record {self._store.path} was begun with {other} = {before.get(other)!r}, now it is "
                f"{now[other]!r}: who asks again would be told what was said then. Give web.record another file, or "
                "leave it empty to take nothing down."
            )

    def _answered(self, key: str) -> tuple[str | None, str] | None:
        """What was answered first of all, if anything was."""
        answers = ((error, json.loads(said)) for _, error, said in _rows(self._store, key) if error != "tool")
        return next(answers, None)


class Replay:
    """Says what a recorded run was told, and awaits nothing. Raises ConfigError if there is no record at `path`."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise ConfigError(f"There is no record of a run at {path}. Record one first, or correct the path.")
        self._path, self._store = path, Store(path, _KIND, _SCHEMA)
        self._asked: Counter[str] = Counter()

    def close(self) -> None:
        """Close the file."""
        self._store.close()

    def answer(self, key: str) -> str:
        """What was answered. Raises PageError and ToolError as they were; ToolError for what was never asked."""
        rows = sorted(_rows(self._store, key), key=lambda row: row[1] == "tool")  # first what was answered first of all
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
    """A `SearchEngine` whose results are taken down."""

    engine: SearchEngine
    recording: Recording

    @property
    def is_local(self) -> bool:
        """As the engine is."""
        return self.engine.is_local

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """What the engine finds, or found before. Raises ToolError."""

        async def found(query: str) -> list[Passage]:
            async def call() -> str:
                return to_text((await self.engine.search([query], k))[0])

            return from_text(await self.recording.answer(_search_key(query, k), call))

        return await for_each(queries, found)


@dataclass(frozen=True, slots=True)
class ReplayEngine:
    """A `SearchEngine` that finds what was found in a recorded run."""

    replay: Replay
    is_local = True

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """What was found. Raises ToolError."""

        async def found(query: str) -> list[Passage]:
            return from_text(self.replay.answer(_search_key(query, k)))

        return await for_each(queries, found)  # all of them are asked for, as they were


@dataclass(frozen=True, slots=True)
class RecordingFetcher:
    """A `Fetcher` whose pages are taken down."""

    fetcher: Fetcher
    recording: Recording

    @property
    def is_local(self) -> bool:
        """As the fetcher is."""
        return self.fetcher.is_local

    async def fetch(self, url: str) -> Page:
        """The page, now or as it was opened before. Raises PageError or ToolError."""

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
    """A `PageReader` of which it is taken down what it took from pages."""

    reader: PageReader
    recording: Recording

    async def read(self, page: Page, *, task: str, key: str) -> str:
        """What the reader takes from the page, or took before. Raises ToolError."""

        async def call() -> str:
            return await self.reader.read(page, task=task, key=key)

        return await self.recording.answer(_reading_key(page, task, key), call)


@dataclass(frozen=True, slots=True)
class ReplayReader:
    """A `PageReader` that takes from pages what was taken in a recorded run."""

    replay: Replay

    async def read(self, page: Page, *, task: str, key: str) -> str:
        """What was taken. Raises ToolError."""
        return self.replay.answer(_reading_key(page, task, key))


def _rows(store: Store, key: str) -> list[tuple[int, str | None, str]]:
    """Number, error and text of all that was taken down for a key, by number. Raises RunError if any is damaged."""
    found: list[tuple[int, str | None, str]] = []
    for number, error, sealed in store.rows(
        "SELECT number, error, said FROM answers WHERE key = ? ORDER BY number", key
    ):
        said = unseal(sealed, key, number, error)
        if said is None:
            raise RunError(
                f"The record {store.path} is damaged: what it says of {key} is not what was written. Restore the file "
                "from a copy, or record the run again into a new one."
            )
        found.append((number, error, said))
    return found


async def _outcome(call: Callable[[], Awaitable[str]]) -> tuple[str | None, str]:
    """What a call gives, or which error it raises."""
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
