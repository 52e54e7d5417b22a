"""A file of JSON lines that grows batch by batch, and that can be gone on with after whatever ended the process.

    OUT.jsonl              one row a line
    OUT.jsonl.state.json   the settings, how far it is, the lines of the last batch with the place they belong to, and
                           the digests of what stands before them and of the state itself

A batch goes into the state first and is then appended. Whoever goes on writes what is missing of it. Nothing that is in
the file is ever removed: one that holds anything else than the state says is refused.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from evoseek.errors import ConfigError, RunError, RunLockedError
from evoseek.files import json_digest, write_atomic
from evoseek.runs import changes

_KINDS = {"settings": dict, "place": int, "before": str, "lines": str}


class GrowingFile:
    """An open file, held against other processes; made by `open_growing_file`.

    `reached` is what was said of the last batch; {} before there is one.
    """

    def __init__(self, path: Path, file: BinaryIO, settings: Mapping[str, object]) -> None:
        self.path = path
        self.reached: Mapping[str, Any] = {}
        self._file, self._settings = file, settings
        self._written = hashlib.sha256()

    @property
    def is_empty(self) -> bool:
        """Whether no row is written."""
        return not os.fstat(self._file.fileno()).st_size

    def append(self, rows: Iterable[Mapping[str, object]], reached: Mapping[str, Any]) -> None:
        """Add a batch, and how far the file then is, as values for JSON.

        Raises RunError when the disk does not take it: the same batch can then be added again.
        """
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        place = os.fstat(self._file.fileno()).st_size
        before = self._written.hexdigest()
        state = {"settings": self._settings, **reached, "place": place, "before": before, "lines": lines}
        write_atomic(_state_path(self.path), json.dumps({**state, "sha256": json_digest(state)}, ensure_ascii=False))
        self._write(lines.encode())
        self._written.update(lines.encode())
        self.reached = reached

    def take_up(self, kinds: Mapping[str, type]) -> None:
        """Go on where another process left off; `kinds` are the types of what `reached` holds.

        Raises ConfigError if the settings are others, RunError if file and state do not belong together.
        """
        state = _read_state(self.path)
        _check_kinds(self.path, state, _KINDS)
        if self._settings and self._settings.keys().isdisjoint(state["settings"]):
            raise ConfigError(
                f"{self.path} is there already, and came of other work than this. It is left as it is: give the name "
                "of a new file."
            )
        changed = changes(state["settings"], self._settings)
        if changed:
            raise ConfigError(
                f"{self.path} was begun with other settings and can only be gone on with by the same ones: {changed}. "
                "Restore these, or give another file."
            )
        _check_kinds(self.path, state, kinds)
        place, lines = state["place"], state["lines"].encode()
        self._file.seek(0)
        data = self._file.read()
        head, tail = data[:place], data[place:]
        self._written = hashlib.sha256(head)
        if self._written.hexdigest() != state["before"] or not lines.startswith(tail):
            raise RunError(
                f"{self.path} was changed since it was written: it does not hold the lines that "
                f"{_state_path(self.path).name} tells of. Restore it from a copy, or give another file and leave this "
                "one as it is."
            )
        self._write(lines[len(tail) :])
        self._written.update(lines)
        self.reached = {key: state[key] for key in kinds}

    def _write(self, data: bytes) -> None:
        try:
            while data:
                data = data[self._file.write(data) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            raise RunError(
                f"{self.path} cannot be written ({error.strerror or error}). Free some space or check the permissions, "
                "then give the same command again: it goes on from there."
            ) from error


@contextmanager
def open_growing_file(path: Path, settings: Mapping[str, object], kinds: Mapping[str, type]) -> Generator[GrowingFile]:
    """A new file, or one that was begun with the same settings, as far as it is. `kinds` are the types of what
    `reached` will hold.

    Raises ConfigError or RunError if there is something else at `path`, if it cannot be written, or if another process
    is writing it.
    """
    begun = _is_begun(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+b", buffering=0)
    except OSError as error:
        raise RunError(
            f"{path} cannot be written ({error.strerror or error}). Give a file in a folder where this user may write."
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RunLockedError(
                f"Another process is writing {path}. Wait for it to end, stop it, or give another file."
            ) from error
        opened = GrowingFile(path, file, settings)
        if begun:
            opened.take_up(kinds)
        yield opened


def _is_begun(path: Path) -> bool:
    """Whether there is a file to go on with. Raises ConfigError if there is anything else but an empty one."""
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path} is no file that could be written to. Give the name of a new file.")
    begun = path.is_file() and _state_path(path).is_file()
    if not begun and path.is_file() and path.stat().st_size:
        raise ConfigError(
            f"{path} is there already, and {_state_path(path).name}, which would tell how to go on with it, is not "
            "beside it. It is left as it is: give the name of a new file."
        )
    return begun


def _state_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.state.json")


def _read_state(path: Path) -> dict[str, Any]:
    try:
        state = json.loads(_state_path(path).read_text(encoding="utf-8"))
        if not isinstance(state, dict):
            raise ValueError("it is not what belongs there")
        found = cast(dict[str, Any], state)
        if found.pop("sha256", None) != json_digest(found):
            raise ValueError("it does not match its own checksum")
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path, str(error)) from error
    return found


def _check_kinds(path: Path, state: Mapping[str, Any], kinds: Mapping[str, type]) -> None:
    if any(not isinstance(state.get(key), kind) for key, kind in kinds.items()):
        raise _damaged(path, "it is not what belongs there")


def _damaged(path: Path, why: str) -> RunError:
    return RunError(
        f"{_state_path(path)} is damaged ({why}), so {path} cannot be gone on with. Restore it from a copy, or give "
        "another file."
    )
