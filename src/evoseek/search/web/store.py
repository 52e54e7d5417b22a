"""SQLite files that many processes of one machine read and write, and that a killed process leaves intact."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random

from evoseek.errors import ConfigError, RunError
from evoseek.files import json_digest
from evoseek.types import Passage

_BUSY_S = 30.0  # seconds to wait for others to finish writing
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_SEAL = 64  # characters of a SHA-256


class Store:
    """An SQLite file in WAL mode, each statement a separate transaction: a process killed at any moment, this one
    included, leaves everything written before intact. WAL needs a disk of this machine: no network file system.

    `kind` is four letters that tell this kind of file from others, `schema` makes its tables. Raises ConfigError if
    there is anything else at `path`, RunError if it cannot be opened, read or written.

    SQLite does not notice a changed byte in a row. So data that must not change is stored sealed, with a checksum:
    statements have the function seal(text, ...) for this, and `unseal` gives the text back.
    """

    def __init__(self, path: Path, kind: str, schema: str) -> None:
        self.path = path
        with self._explained():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            self._database.create_function("seal", -1, seal, deterministic=True)
            self._set_up(int.from_bytes(kind.encode()), schema)

    def _set_up(self, kind: int, schema: str) -> None:
        self._database.execute("BEGIN IMMEDIATE")  # of several that open a new file, one makes the tables
        ((found,),) = self.rows("PRAGMA application_id")
        if found != kind and self.rows("SELECT 1 FROM sqlite_master"):
            self.close()
            raise ConfigError(
                f"{self.path} is an SQLite file of something else, or of another version of evoseek. Give the name of "
                "a new file."
            )
        if (problem := self.rows("PRAGMA integrity_check(1)")) != [("ok",)]:  # a broken tree could loop for ever
            raise sqlite3.DatabaseError(f"it is damaged: {problem[0][0]}")
        self._database.execute(f"PRAGMA application_id = {kind}")
        self._database.execute(schema)
        self._database.execute("COMMIT")
        change_of_mode = Retrying(
            retry=retry_if_exception(_is_busy),  # SQLite waits for no one with this statement
            stop=stop_after_delay(_BUSY_S),
            wait=wait_random(0.0, 0.05),
            reraise=True,
        )
        change_of_mode(self._database.execute, "PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")

    def rows(self, statement: str, *values: object) -> list[Any]:
        """What a statement selects."""
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
    """A text with the checksum of itself and of the other values in its row, behind which it stands."""
    return json_digest([text, *place]) + text


def unseal(sealed: object, *place: object) -> str | None:
    """The text, or None if it or the other values are not what was sealed."""
    if not isinstance(sealed, str) or sealed[:_SEAL] != json_digest([sealed[_SEAL:], *place]):
        return None
    return sealed[_SEAL:]


def to_text(passages: Sequence[Passage]) -> str:
    """Passages as a text for a store."""
    return json.dumps([asdict(passage) for passage in passages])


def from_text(text: str) -> list[Passage]:
    """The passages of a text that `to_text` gave."""
    return [Passage(**fields) for fields in json.loads(text)]
