"""Changing an index on disk as a whole: the new state stands complete beside the old one before it takes its place.

    <directory>/manifest.json    names the one data folder that counts
    <directory>/data-<random>/   tantivy's files, and those of the vectors if there are any
    <directory>/embedding.*      vectors of a change that was interrupted, from which the same change resumes
    <directory>/.lock            held while the index is being changed

A process killed at any moment leaves the old index as it was (or no index), and a data folder that nothing names; the
next change removes it. Processes that have the old index open keep it: their files are mapped.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from evoseek.errors import SearchIndexError, disk_text
from evoseek.files import remove_leftovers
from evoseek.search.manifest import NAME

_LOCK = ".lock"
_RESUMED = ("embedding.", ".embedding.")


@contextmanager
def change(directory: Path) -> Generator[Path]:
    """Hold the index and yield a new, empty data folder. When the block has written a manifest that names it, all
    other data folders go; when it fails, the new one goes.

    SearchIndexError if the directory holds anything else, if another process is changing the index, or (also out of
    the block) if the disk does not take it.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with _locked(directory):
            _refuse_foreign(directory)
            remove_leftovers(directory)
            data = directory / f"data-{secrets.token_hex(8)}"
            data.mkdir()
            try:
                yield data
            except BaseException:
                shutil.rmtree(data, ignore_errors=True)
                raise
            _remove_others(data)
            for lock in data.glob("*.lock"):  # tantivy's; whoever opens the index has its own
                lock.unlink()
    except OSError as error:
        raise SearchIndexError(disk_text(error, f"The search index in {directory} cannot be written")) from error


@contextmanager
def _locked(directory: Path) -> Generator[None]:
    with (directory / _LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SearchIndexError(
                f"The search index in {directory} is being changed by another process. Wait until that has finished, "
                "or give another folder."
            ) from error
        yield


def _refuse_foreign(directory: Path) -> None:
    for entry in sorted(directory.iterdir()):
        if entry.name not in (NAME, _LOCK) and not entry.name.startswith(("data-", f".{NAME}", *_RESUMED)):
            raise SearchIndexError(
                f"The folder {directory} holds something that is no part of a search index ({entry.name}). Give a new "
                "or empty folder, or one that holds an index."
            )


def _remove_others(data: Path) -> None:
    for folder in data.parent.glob("data-*"):
        if folder != data:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def linked(data: Path) -> Generator[Path]:
    """A data folder as a temporary folder of links, for opening: tantivy puts locks beside the files it opens, and an
    index may lie where this user cannot write. What was opened stays open afterwards: the files are mapped.

    A thread of tantivy's that watches the folder may put a lock into it while it is being removed: then it stays."""
    with TemporaryDirectory(prefix="evoseek-index-", ignore_cleanup_errors=True) as folder:
        for path in data.iterdir():
            if path.suffix != ".lock":
                Path(folder, path.name).symlink_to(path.absolute())
        yield Path(folder)


def copy_files(source: Path, target: Path, pattern: str = "*") -> None:
    """Bring the files that fit a pattern into a new data folder: linked where the file system can, since tantivy never
    changes a segment's files; its two lists of files (JSON) are copied, and its locks are left behind."""
    for path in source.glob(pattern):
        if path.suffix == ".lock":
            continue
        if path.suffix == ".json":
            shutil.copyfile(path, target / path.name)
            continue
        try:
            os.link(path, target / path.name)
        except OSError:
            shutil.copyfile(path, target / path.name)
