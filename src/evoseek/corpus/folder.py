"""Finding the files of a folder, always in the same order, whatever links it holds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from evoseek.corpus.read_report import ReadReport


@dataclass(frozen=True, slots=True)
class CorpusFile:
    """A file to read. `id` is its path relative to the corpus, with forward slashes."""

    path: Path
    id: str


def find_files(root: Path, report: ReadReport) -> Iterator[CorpusFile]:
    """Every file under `root` (or `root` itself if it is a file), sorted by name within each folder.

    Links to folders outside are followed, each real folder being read once; a link back into the corpus, or to a
    folder around it, is skipped, and so are hidden folders and folders that cannot be listed.
    """
    if not root.is_dir():
        yield CorpusFile(root, _text(root.name))
        return
    walk = _Walk(root.resolve(), report)
    for folder, subfolders, names in os.walk(root, followlinks=True, onerror=walk.unreadable):
        subfolders[:] = [name for name in sorted(subfolders) if walk.admit(Path(folder, name))]
        for name in sorted(names):
            path = Path(folder, name)
            yield CorpusFile(path, _text(path.relative_to(root).as_posix()))


class _Walk:
    """Decides which folders are entered."""

    def __init__(self, root: Path, report: ReadReport) -> None:
        self._root = root
        self._report = report
        self._entered = {root}

    def admit(self, folder: Path) -> bool:
        real = folder.resolve()
        if folder.name.startswith("."):
            reason = "hidden folder"
        elif folder.is_symlink() and (real.is_relative_to(self._root) or self._root.is_relative_to(real)):
            reason = "link that leads back into the corpus"
        elif real in self._entered:
            reason = "folder that was read under another name"
        else:
            self._entered.add(real)
            return True
        self._report.skip(folder, reason)
        return False

    def unreadable(self, error: OSError) -> None:
        self._report.skip(Path(error.filename or self._root), f"folder cannot be listed: {error.strerror}")


def _text(path: str) -> str:
    """The path as proper Unicode: bytes of a name that are not UTF-8 become the replacement character."""
    return os.fsencode(path).decode("utf-8", "replace")
