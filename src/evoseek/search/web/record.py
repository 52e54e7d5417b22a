"""Record and replay: the answers that a run got from the web and from the reader, so that it can be repeated without
them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from evoseek.errors import ConfigError, PageError, RunError, ToolError
from evoseek.search.web.store import Store, seal, unseal

_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS answers (key TEXT, number INTEGER, error TEXT, said TEXT NOT NULL, "
    "PRIMARY KEY (key, number)) WITHOUT ROWID"
)
_KIND = "evR2"
_MADE_WITH = "made with"  # the key of the settings; no other key begins like this
_ERRORS: dict[str, type[PageError | ToolError]] = {"page": PageError, "tool": ToolError}


class Recording:
    """Records the answers that a run gets (see `StoredWeb`), in an SQLite file.

    A recorded answer (a PageError is an answer) is reused for the rest of the run, also after it was resumed. Failures
    (ToolError) are recorded by their number: the n-th call of a key fails in a replay if the n-th call failed in the
    run. So the same rollouts fail if all calls are made in the same order, which a lockstep sampler ensures; after a
    resumed run, or with several processes, other rollouts may fail. Cancelled calls are not recorded.

    `made_with` are the settings that determine the answers. Raises ConfigError for a file that was begun with other
    settings, or has answers but no settings: their answers would be mistaken for those of these settings.
    """

    def __init__(self, path: Path, made_with: Mapping[str, object] | None = None) -> None:
        self._store = Store(path, _KIND, _SCHEMA)
        self._calls: Counter[str] = Counter()
        if made_with is not None:
            try:
                self._check(json.dumps(made_with))
            except ConfigError:
                self.close()
                raise

    def close(self) -> None:
        """Close the file."""
        self._store.close()

    async def answer(self, key: str, call: Callable[[], Awaitable[str]]) -> str:
        """The recorded answer, or the result of `call`. Raises PageError and ToolError, as `call` does."""
        number, self._calls[key] = self._calls[key], self._calls[key] + 1
        if not (answered := self._answered(key)):
            error, text = await _outcome(call)
            if error == "tool" or not (answered := self._answered(key)):  # a concurrent call may have been first
                self._write(key, number, error, text)
                return _result(error, text)
        return _result(*answered)

    def _write(self, key: str, number: int, error: str | None, text: str) -> None:
        """Under its number, or after all others if an earlier run or another process has used that."""
        with self._store.transaction():
            numbers = [row[0] for row in self._store.rows("SELECT number FROM answers WHERE key = ?", key)]
            number = max(numbers) + 1 if number in numbers else number
            _insert(self._store, key, number, error, json.dumps(text))

    def _check(self, made_with: str) -> None:
        with self._store.transaction():
            if not self._store.rows("SELECT 1 FROM answers LIMIT 1"):
                _insert(self._store, _MADE_WITH, 0, None, made_with)
        found = _rows(self._store, _MADE_WITH)
        if not found:
            raise ConfigError(
                f"The record {self._store.path} has answers, but does not say with which settings it was made: they "
                "may differ from the current ones. Give web.record another file, or leave it empty to record nothing; "
                "web.replay can still repeat this one."
            )
        before, now = json.loads(found[0][2]), json.loads(made_with)
        if other := next((name for name in now if before.get(name) != now[name]), None):
            raise ConfigError(
                f"The record {self._store.path} was begun with {other} = {before.get(other)!r}, now it is "
                f"{now[other]!r}: calls would get the answers of then. Give web.record another file, or leave it empty "
                "to record nothing."
            )

    def _answered(self, key: str) -> tuple[str | None, str] | None:
        """The first recorded answer, if any."""
        answers = ((error, json.loads(text)) for _, error, text in _rows(self._store, key) if error != "tool")
        return next(answers, None)


class Replay:
    """Returns the answers of a recorded run, without awaiting anything. Raises ConfigError if there is no record at
    `path`, RunError if any row of it is damaged: a failure whose key was changed would never be missed."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise ConfigError(f"There is no record of a run at {path}. Record one first, or correct the path.")
        self._path, self._store = path, Store(path, _KIND, _SCHEMA)
        self._calls: Counter[str] = Counter()
        try:
            for row in self._store.rows("SELECT key, number, error, said FROM answers"):
                _unsealed(self._store, *row)
        except RunError:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._store.close()

    async def answer(self, key: str, call: Callable[[], Awaitable[str]]) -> str:
        """The recorded answer; `call` is not made. Raises PageError and ToolError as recorded, and ToolError for a call
        that is not in the record."""
        rows = sorted(_rows(self._store, key), key=lambda row: row[1] == "tool")  # answers before failures
        if not rows:
            raise ToolError(
                f"The record {self._path} has no answer to {key}. Replay the run that was recorded, with the same "
                "settings, or record this one."
            )
        number, self._calls[key] = self._calls[key], self._calls[key] + 1
        _, error, text = next((row for row in rows if row[0] == number), rows[0])
        return _result(error, json.loads(text))


def _insert(store: Store, key: str, number: int, error: str | None, text: str) -> None:
    sealed = seal(text, key, number, error)
    store.change("INSERT INTO answers VALUES (?, ?, ?, ?)", key, number, error, sealed)


def _rows(store: Store, key: str) -> list[tuple[int, str | None, str]]:
    """Number, error and text of all records for a key, by number. Raises RunError if any is damaged."""
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


async def _outcome(call: Callable[[], Awaitable[str]]) -> tuple[str | None, str]:
    """The kind of error that a call raises, if any, and its text or the call's result."""
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
