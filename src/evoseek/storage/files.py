"""Files that are either complete or absent: written under a temporary name, flushed to disk, then renamed.

A temporary file or folder is locked while its process lives. The lock distinguishes a file that a live process is
writing from the leftovers of a killed one. The next process that writes the same file removes leftovers.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Generator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import BinaryIO

from evoseek.errors import ConfigError, RunError, disk_text

_TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{12}\.tmp")
_OF_A_MODEL = (".json", ".safetensors", ".jinja", ".txt", ".model")
_HASHED_WHOLE, _BLOCKS, _BLOCK = 256 * 2**20, 256, 64 * 1024


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's contents. OSError if it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def model_digest(path: Path) -> str:
    """Return a digest that identifies the model in a file, or in a directory (its settings, tokenizer and weights).

    For a file above 256 MiB only its size and 256 evenly spread blocks of 64 KiB are hashed. Training changes all
    weights, and hashing a hundred gigabytes at every start would take minutes. OSError if a file cannot be read.
    """
    if path.is_file():
        return _sampled_digest(path)
    paths = sorted(file for file in path.iterdir() if file.suffix in _OF_A_MODEL and file.is_file())
    return json_digest({file.name: _sampled_digest(file) for file in paths})


def _sampled_digest(path: Path) -> str:
    size = path.stat().st_size
    if size <= _HASHED_WHOLE:
        return file_digest(path)
    found = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        for number in range(_BLOCKS):
            file.seek((size - _BLOCK) * number // (_BLOCKS - 1))
            found.update(file.read(_BLOCK))
    return found.hexdigest()


def json_digest(value: object) -> str:
    """Return the SHA-256 of a JSON value, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def write_atomic(path: Path, data: bytes | str, *, mode: int = 0o666) -> None:
    """Write a file so that a reader, even after a crash, sees the old content or the new, never a part.

    Text is written as UTF-8. The file has the permissions `mode` minus the umask. Raises RunError if it cannot be
    written (a full disk, no permission); the old file is then untouched. If only the folder cannot be flushed, a crash
    might still undo the change, so a new file is removed.
    """
    is_new = not path.exists()
    try:
        remove_leftovers(path.parent, path.name)
        with _temporary(path, mode=mode) as temporary:
            with temporary.open("r+b") as file:
                file.write(data.encode() if isinstance(data, str) else data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            try:
                _sync_directory(path.parent)
            except OSError:
                if is_new:
                    path.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise RunError(disk_text(error, f"{path} could not be written"), code="disk.failed") from error


@contextmanager
def new_file(path: Path) -> Generator[BinaryIO]:
    """Provide a file to fill. On success it is flushed and becomes `path`. FileExistsError if anything is there, also a
    link; OSError if it cannot be written."""
    with _temporary(path) as temporary:
        with temporary.open("r+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
        _sync_directory(path.parent)


def read_regular(path: Path, encoding: str = "utf-8") -> str:
    """Return the text of a file. OSError if it cannot be read, or is a pipe or device, which could block or never end;
    ValueError if it is in another encoding."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))
    return path.read_text(encoding=encoding)


def expanded(path: str | Path) -> Path:
    """Expand ~ or ~user in a path. Raises ConfigError if the home folder is unknown."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigError(
            f"The path {path} begins with a home folder that is not known on this machine. Expected ~, or ~ and the "
            "name of a user of this machine. Correct it, or give the path without ~.",
            code="file.unknown_home",
        ) from error


def nearest(path: Path) -> str:
    """Return a hint for a path that does not exist: " Did you mean X?" with the closest one, or ""."""
    found = _nearest(Path(os.path.expanduser(path)))
    return f" Did you mean {found}?" if found is not None and found != path else ""


def _nearest(path: Path) -> Path | None:
    if path.exists():
        return path
    if path.parent == path or (parent := _nearest(path.parent)) is None or not parent.is_dir():
        return None
    try:
        names = [entry.name for entry in parent.iterdir() if not entry.name.startswith(".")]
    except OSError:
        return None
    same = [path.name] if path.name in names else get_close_matches(path.name, names, 1, 0.6)
    return parent / same[0] if same else None


def check_new_file(path: Path) -> None:
    """Make the folder of a new file before any work. Raises ConfigError if the file exists or cannot be written."""
    if path.exists():
        raise ConfigError(f"{path} is there already and was not changed. Give the name of a new file.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"The folder of {path} cannot be made ({error.strerror or error}). Give a path in another folder."
        ) from error
    if not os.access(path.parent, os.W_OK):
        raise ConfigError(f"No write permission for {path.parent}. Give a path in another folder.")


def check_new(directory: Path) -> None:
    """Raise ConfigError for a folder that an export would replace, or that cannot be created."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ConfigError(
            f"{directory} is there already and is no empty folder; an export would replace it. Give a new folder."
        )
    blocking = next((parent for parent in directory.parents if parent.exists()), None)
    if blocking is not None and not blocking.is_dir():
        raise ConfigError(f"{directory} cannot be made: {blocking} is a file. Give a new folder.")


@contextmanager
def replace_directory(target: Path) -> Generator[Path]:
    """Provide an empty directory to fill. On success it becomes `target`, replacing the old one.

    All its files get the process's permissions for new files (safetensors writes for the owner alone) and are flushed
    to disk first. On an error (which is re-raised) the directory is removed and `target` is untouched. A crash leaves
    the old directory, the new one or, in the instant between two renames, none.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(target.parent, target.name)
    replaced = _temporary_name(target)
    with _temporary(target, folder=True) as temporary:
        try:
            yield temporary
            sync_tree(temporary)
            if target.exists():
                os.replace(target, replaced)
            os.replace(temporary, target)
            try:
                _sync_directory(target.parent)
            except OSError:
                os.replace(target, temporary)
                raise
        finally:
            if replaced.exists() and not target.exists():
                os.replace(replaced, target)
            shutil.rmtree(replaced, ignore_errors=True)


def remove_directory(path: Path) -> None:
    """Remove a directory so that a crash leaves it either whole or invisible."""
    temporary = _temporary_name(path)
    os.replace(path, temporary)
    shutil.rmtree(temporary, ignore_errors=True)


def remove_leftovers(directory: Path, name: str | None = None) -> None:
    """Remove files that killed processes left half-written in `directory`: only leftovers of the file `name`, or all.

    Files that a live process is writing stay, as does everything without one of our temporary names.
    """
    for path in directory.glob(".*.tmp"):
        match = _TEMPORARY.fullmatch(path.name)
        if match and name in (None, match["name"]):
            with suppress(OSError):
                _remove_unlocked(path)


@contextmanager
def _temporary(path: Path, *, folder: bool = False, mode: int = 0o666) -> Generator[Path]:
    """Create a file or folder beside `path`, locked for the block, and removed after it unless it was renamed."""
    temporary, descriptor = _create_locked(path, folder, mode)
    try:
        yield temporary
    finally:
        _remove(temporary)
        os.close(descriptor)


def _create_locked(path: Path, folder: bool, mode: int) -> tuple[Path, int]:
    while True:
        temporary = _temporary_name(path)
        if folder:
            temporary.mkdir()
        else:
            temporary.touch(mode, exist_ok=False)
        with suppress(FileNotFoundError):  # another process took it for a leftover before it was locked
            descriptor = os.open(temporary, os.O_RDONLY)
            with suppress(OSError):  # a file system without locks, where nothing is ever taken for a leftover
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if temporary.exists():
                return temporary, descriptor
            os.close(descriptor)


def _remove_unlocked(path: Path) -> None:
    """Remove a path that no process holds. OSError if one does."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(path)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _temporary_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp")


def sync_tree(directory: Path) -> None:
    """Make sure that all files reach the disk, with the permissions of a new file."""
    usual = directory.stat().st_mode & 0o666  # permissions of a new folder, and so of a new file: what the umask leaves
    for folder, _, names in os.walk(directory, topdown=False):
        for name in names:
            with suppress(OSError):  # a file system without permissions
                Path(folder, name).chmod(usual)
            with Path(folder, name).open("rb") as file:
                os.fsync(file.fileno())
        _sync_directory(Path(folder))


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
