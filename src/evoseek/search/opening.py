"""Opening an index with the engine that it was built for."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path

from evoseek.errors import EvoseekError
from evoseek.search.dense import DenseIndex
from evoseek.search.hybrid import HybridIndex
from evoseek.search.lexical import LexicalIndex
from evoseek.search.manifest import NAME, Manifest
from evoseek.types import Passage

_LOG = logging.getLogger(__name__)
_LOOK_S = 1.0  # seconds between two looks at whether the index was changed


def open_built(directory: Path, engine: str | None = None) -> LexicalIndex | DenseIndex | HybridIndex:
    """An index, to be searched by an engine; None: the one that it was built for. Raises as `LexicalIndex.open` and
    `DenseIndex.open`."""
    opened = {"dense": DenseIndex.open, "hybrid": HybridIndex.open}
    return opened.get(engine or Manifest.read(directory).engine or "", LexicalIndex.open)(directory)


class LiveIndex:
    """An index for a server that stays: within a second of a change on disk it answers from the new state. One that
    cannot be opened is logged, and the old one goes on being searched."""

    def __init__(self, directory: Path, engine: str | None = None) -> None:
        """Raises as `open_built`."""
        self._directory, self._engine = directory, engine
        self._state, self._looked = _state(directory), time.monotonic()
        self._index = open_built(directory, engine)

    def __len__(self) -> int:
        """Number of passages."""
        return len(self._index)

    def find_all(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """For each query at most k passages, best first. To be called from one thread at a time."""
        if time.monotonic() - self._looked >= _LOOK_S:
            self.look()
        return self._index.find_all(queries, k)

    def look(self) -> None:
        """Open the index anew if it was changed."""
        state, self._looked = _state(self._directory), time.monotonic()
        if state == self._state:
            return
        self._state = state
        try:
            self._index = open_built(self._directory, self._engine)
            _LOG.warning("%s was changed: its %s passages are searched from now on.", self._directory, len(self))
        except EvoseekError as error:
            _LOG.error("%s was changed and cannot be opened, so the old state is searched: %s", self._directory, error)


def _state(directory: Path) -> object:
    """Differs after every change: the manifest is a new file each time."""
    try:
        found = (directory / NAME).stat()
        return found.st_ino, found.st_mtime_ns
    except OSError:
        return None
