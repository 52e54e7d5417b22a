"""Files that are there whole or not at all: written under a temporary name, flushed to disk, then renamed."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from evoseek.errors import RunError

_TEMPORARY = ".tmp"


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write a file so that a reader, also after a crash, sees the old content or the new, never a part.

    Text is written as UTF-8. Raises RunError if it cannot be written (a full disk, no permission); the old file is
    then untouched.
    """
    temporary = _temporary_name(path)
    try:
        with temporary.open("xb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_directory(path.parent)
    except OSError as error:
        raise RunError(
            f"{path} could not be written: {error.strerror or error}. What was there before is unchanged. Free space "
            "on the disk (or make the folder writable) and run the same command again."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replace_directory(target: Path) -> Generator[Path]:
    """Give an empty directory to fill; on leaving without an error it becomes `target`, replacing what is there.

    Everything in it is flushed to disk first. On an error (which is passed on) it is removed and `target` is
    untouched. A crash leaves the old directory, the new one or, in the instant between two renames, none.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary_name(target)
    replaced = _temporary_name(target)
    temporary.mkdir()
    try:
        yield temporary
        _sync_tree(temporary)
        if target.exists():
            os.replace(target, replaced)
        os.replace(temporary, target)
        _sync_directory(target.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)


def remove_directory(path: Path) -> None:
    """Remove a directory so that a crash leaves it whole or out of sight."""
    temporary = _temporary_name(path)
    os.replace(path, temporary)
    shutil.rmtree(temporary, ignore_errors=True)


def remove_leftovers(directory: Path) -> None:
    """Remove what a killed process left half-written in `directory`; call it only where no other process writes."""
    for path in directory.glob(f".*{_TEMPORARY}"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _temporary_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}{_TEMPORARY}")


def _sync_tree(directory: Path) -> None:
    for folder, _, names in os.walk(directory, topdown=False):
        for name in names:
            with Path(folder, name).open("rb") as file:
                os.fsync(file.fileno())
        _sync_directory(Path(folder))


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
