"""An append-only file of JSON lines that can be resumed, however its last process ended.

Its owner may store the positions, as a run does in its checkpoints (`ResumableJsonl`, `position`, `cut_back`). Or the
file stores its own position beside itself (`open_growing_file`, `append_batch`):

    OUT.jsonl              one row a line
    OUT.jsonl.state.json   the settings, the progress, the lines of the last batch with their position, and the digests
                           of the bytes before them and of the state itself

Such a batch is first written to the state, then appended. A process that resumes the file appends missing lines of the
batch, and refuses a file whose contents differ from its state.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from evoseek.errors import ConfigError, DataError, RunError, RunLockedError, disk_text, first_problem
from evoseek.storage.files import json_digest, write_atomic
from evoseek.storage.runs import changes

T = TypeVar("T")
Tree = Mapping[str, object]
_ASCII, _UNICODE = json.JSONEncoder(), json.JSONEncoder(ensure_ascii=False)
_STATE = {"settings", "reached", "place", "before", "lines"}
_BLOCK = 2**20
_REMEDY = "Restore the file from a copy, or start again with another run directory or file name."


class ResumableJsonl:
    """The file at `path`, which need not exist yet. It is opened for each call, so its owner may cut it at any time.

    `encoder` says how a row is spelt. A file that keeps its own position has `settings`, and `reached` is what was
    stored with its last batch ({} before the first one). `defaults` are the values of settings that were added after
    the file was begun.
    """

    def __init__(
        self, path: Path, encoder: json.JSONEncoder = _ASCII, settings: Tree | None = None, defaults: Tree | None = None
    ) -> None:
        self.path = path
        self.reached: Mapping[str, Any] = {}
        self._encoder, self._settings, self._defaults = encoder, settings or {}, defaults

    @property
    def size(self) -> int:
        """Bytes of the file; 0 if there is none."""
        return self.path.stat().st_size if self.path.exists() else 0

    def append(self, rows: Iterable[Mapping[str, object]]) -> None:
        """Append rows: all of them, or none. They are handed to the operating system, so a killed process loses none.
        An incomplete last line of an earlier process is cut off first.

        Raises RunError if the disk refuses them: the same rows can then be appended again.
        """
        self._write(self._lines(rows).encode())

    def append_batch(self, rows: Iterable[Mapping[str, object]], reached: Mapping[str, Any]) -> None:
        """Append rows to a file that keeps its own position, and store the progress `reached` (JSON values). Both are
        on the disk afterwards. Raises RunError as `append`."""
        lines = self._lines(rows)
        end = {"place": self.size, "before": self.digest(), "lines": lines}
        state = {"settings": self._settings, "reached": reached, **end}
        write_atomic(_state_path(self.path), json.dumps({**state, "sha256": json_digest(state)}, ensure_ascii=False))
        self._write(lines.encode())
        self.position()
        self.reached = reached

    def rows(self, make: Callable[[Any], T], noun: str) -> Iterator[T]:
        """Yield `make(row)` for each row, in order; nothing if there is no file. An incomplete last line, from a
        process that was killed or is writing, is left out.

        Raises DataError for a file that cannot be read and, naming the line, for one that is not JSON or that `make`
        refuses by a ValueError, LookupError, TypeError, AttributeError or OverflowError. `noun` names a row in errors.
        """
        if not self.path.exists():
            return
        with self._readable() as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    return
                try:
                    row = make(json.loads(line))
                except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
                    raise DataError(
                        f"{self.path}:{number} is not a {noun} ({type(error).__name__}: {error}). The file was changed "
                        "or written by another version; remove the line to read the rest.",
                        code="rows.invalid",
                    ) from error
                yield row

    def keep(self, is_kept: Callable[[Any], bool], noun: str) -> None:
        """Rewrite the file without the rows that `is_kept` rejects, if there are any. Raises as `rows`, and RunError if
        the disk refuses it."""
        if not all(self.rows(is_kept, noun)):
            kept = (row for row in self.rows(lambda row: row, noun) if is_kept(row))
            write_atomic(self.path, self._lines(kept))

    def _readable(self) -> BinaryIO:
        try:
            return self.path.open("rb")
        except OSError as error:
            raise DataError(
                f"{self.path} cannot be read ({error.strerror or error}). The file must be readable by this user. "
                "Restore it or fix its permissions.",
                code="rows.unreadable",
            ) from error

    def position(self) -> int:
        """Flush the file to the disk and return its length in bytes (0 without a file), for a checkpoint."""
        if not self.path.exists():
            return 0
        with self._writable(), self.path.open("rb") as file:
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size

    def digest(self, length: int | None = None) -> str:
        """Return the SHA-256 of the first `length` bytes, or of all. Raises DataError if they cannot be read."""
        left, found = self.size if length is None else length, hashlib.sha256()
        if left:
            with self._readable() as file:
                while left and (block := file.read(min(left, _BLOCK))):
                    found.update(block)
                    left -= len(block)
        return found.hexdigest()

    def cut_back(self, length: int, digest: str | None = None) -> None:
        """Truncate the file to its first `length` bytes, as if no more had been written; `digest`, if given, is
        checked.

        Raises RunError, and cuts nothing, if there are fewer bytes or different ones: rows are then missing or changed
        and cannot be recovered. Raises DataError if they cannot be read.
        """
        self._check_beginning(length, digest)
        if self.size > length:
            with self._writable():
                os.truncate(self.path, length)

    def resume(self) -> None:
        """Resume the file where another process left it, according to its state.

        Raises ConfigError if the settings differ, RunError if file and state do not belong together.
        """
        state = _read_state(self.path)
        if changed := changes(state["settings"], self._settings, defaults=self._defaults):
            raise ConfigError(
                f"{self.path} was begun with other settings and can only be resumed with the same ones: {changed}. "
                "Restore these settings, or give another file.",
                code="rows.other_settings",
            )
        place, lines = state["place"], state["lines"].encode()
        self._check_beginning(place, state["before"])
        with self._readable() as file:
            file.seek(place)
            tail = file.read(len(lines) + 1)
        if not lines.startswith(tail):
            raise RunError(
                f"{self.path} was changed since it was written: after its first {place} bytes it does not hold the "
                f"lines that {_state_path(self.path).name} records. It was not changed. {_REMEDY}",
                code="rows.changed",
            )
        if tail != lines:
            self.cut_back(place)
            self._write(lines)
            self.position()
        self.reached = state["reached"]

    def _lines(self, rows: Iterable[Mapping[str, object]]) -> str:
        return "".join([self._encoder.encode(row) + "\n" for row in rows])

    def _write(self, data: bytes) -> None:
        with self._writable(), self.path.open("a+b", buffering=0) as file:
            end, rest = _cut_torn_line(file), memoryview(data)
            try:
                while rest:
                    rest = rest[file.write(rest) :]
            except BaseException:
                file.truncate(end)
                raise

    def _check_beginning(self, length: int, digest: str | None) -> None:
        if self.path.is_dir():
            raise RunError(f"{self.path} is a folder, and a file of JSON lines is expected there. {_REMEDY}")
        size = self.size
        if size < length:
            raise RunError(
                f"{self.path} holds {size} bytes, but it held {length} when its position was saved: rows were removed. "
                f"{_REMEDY}",
                code="rows.removed",
            )
        if digest is not None and self.digest(length) != digest:
            raise RunError(
                f"The first {length} bytes of {self.path} differ from when its position was saved: the file was "
                f"changed or damaged. {_REMEDY}",
                code="rows.changed",
            )

    @contextmanager
    def _writable(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            raise RunError(disk_text(error, f"{self.path} cannot be written"), code="disk.failed") from error


@contextmanager
def open_growing_file(path: Path, settings: Tree, defaults: Tree | None = None) -> Generator[ResumableJsonl]:
    """Open a file that stores its own position, locked against other processes: a new one, or one to resume with the
    same settings. `defaults` are the values of settings that were added after the file was begun.

    Raises ConfigError or RunError if `path` is something else or cannot be written, or if another process is writing
    it.
    """
    begun = is_begun(path)
    with held(path):
        file = ResumableJsonl(path, _UNICODE, settings, defaults)
        if begun:
            file.resume()
        yield file


@contextmanager
def held(path: Path, name: str = "") -> Generator[None]:
    """Lock a file, or the file of this name in a folder; it is created if needed. Raises RunLockedError if another
    process holds it, RunError if it cannot be written."""
    try:
        (path if name else path.parent).mkdir(parents=True, exist_ok=True)
        file = (path / name).open("ab")
    except OSError as error:
        raise RunError(disk_text(error, f"{path} cannot be written"), code="disk.failed") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RunLockedError(
                f"Another process is writing {path}. Wait for it to end, stop it, or give another "
                f"{'folder' if name else 'file'}.",
                code="rows.locked",
            ) from error
        yield


@contextmanager
def locked(path: Path, mode: int = 0o666) -> Generator[None]:
    """Wait until no other process or thread holds a file, then lock it; it is created if needed. If `write_atomic`
    replaces it meanwhile, the new file is locked. Raises RunError if it cannot be written."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
        except OSError as error:
            raise RunError(disk_text(error, f"{path} cannot be written"), code="disk.failed") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
                yield
                return
        finally:
            os.close(descriptor)


def made_by(adapter: TypeAdapter[T]) -> Callable[[Any], T]:
    """Return a function that validates a row strictly and makes a record, for `ResumableJsonl.rows`."""

    def make(row: Any) -> T:
        try:
            return adapter.validate_json(json.dumps(row), strict=True)
        except ValidationError as error:
            raise ValueError(first_problem(error)) from error

    return make


def _cut_torn_line(file: FileIO) -> int:
    """Cut off an incomplete last line; return the remaining length."""
    size = end = file.seek(0, os.SEEK_END)
    length = 1  # almost always there is nothing to cut
    while end:
        start = max(0, end - length)
        file.seek(start)
        if (found := file.read(end - start).rfind(b"\n")) >= 0:
            end = start + found + 1
            break
        end, length = start, _BLOCK
    if end < size:
        file.truncate(end)
    return end


def is_begun(path: Path) -> bool:
    """Return whether there is a file to resume. Raises ConfigError for anything else except an empty file."""
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path} is not a regular file. Give the name of a new file.", code="file.not_writable")
    begun = path.is_file() and _state_path(path).is_file()
    if not begun and path.is_file() and path.stat().st_size:
        raise ConfigError(
            f"{path} is there already, but {_state_path(path).name}, which is needed to resume it, is not beside "
            "it. It is left as it is. Give the name of a new file.",
            code="rows.no_state",
        )
    return begun


def _state_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.state.json")


def _read_state(path: Path) -> dict[str, Any]:
    try:
        state = json.loads(_state_path(path).read_text(encoding="utf-8"))
        if not isinstance(state, dict):
            raise ValueError("expected a JSON object")
        found = cast(dict[str, Any], state)
        if found.pop("sha256", None) != json_digest(found) or found.keys() != _STATE:
            raise ValueError("it does not match its own checksum")
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(
            f"{_state_path(path)} is damaged ({error}), so {path} cannot be resumed. Restore it from a copy, or give "
            "another file.",
            code="rows.state_damaged",
        ) from error
    return found
