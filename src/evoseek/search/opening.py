"""Opens an index with the engine for which it was built."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from evoseek.config.registry import build, settings_class
from evoseek.errors import ConfigError, EvoseekError
from evoseek.search.lexical import LexicalIndex, index_directory
from evoseek.search.manifest import NAME, Manifest
from evoseek.search.settings import IndexSettings, SearchSettings
from evoseek.search.sources import files_of
from evoseek.types import Passage

_LOG = logging.getLogger(__name__)
_LOOK_S = 1.0  # seconds between checks for a changed index


def open_built(directory: Path, engine: str = "auto") -> LexicalIndex:
    """Open an index for an engine with its default settings; auto: the engine for which it was built. Raises as
    `LexicalIndex.open` and `DenseIndex.open`, and ConfigError for an engine that does not search an index."""
    name = Manifest.read(directory).engine_for(engine)
    settings: SearchSettings = (settings_class("search", name) or SearchSettings)(name=name, index=str(directory))
    if not settings.reads_index:
        raise ConfigError(f"The index {directory} cannot be opened for the engine '{name}', which searches no index.")
    return build("search", settings, None)


class AsBuilt:
    """Searches the index `search.index` with the engine for which it was built, with default settings."""

    Settings = IndexSettings

    @classmethod
    def build(cls, settings: IndexSettings, context: object) -> LexicalIndex:
        return open_built(index_directory(settings.index, setting="search.index"))


class LiveIndex:
    """An index for a long-running server, as an engine and a store of passages. A second after a change on disk,
    searches use the new state. If the new state cannot be opened, this is logged and the old one stays in use: its
    files stay mapped. `files` are the result of `files_of`."""

    is_local = True

    def __init__(self, directory: Path, opens: Callable[[], LexicalIndex] | None = None) -> None:
        """Open the index with `opens`, by default `open_built`; raises the same errors."""
        self._directory, self._opens = directory, opens or partial(open_built, directory)
        self._opened = self._seen = _state(directory)
        self._looked, self._index = time.monotonic(), self._opens()
        self.files = files_of(directory)

    @property
    def is_current(self) -> bool:
        return _state(self._directory) == self._opened

    def __len__(self) -> int:
        return len(self._index)

    def get(self, passage_id: str) -> Passage:
        return self._index.get(passage_id)

    def around(self, passage_id: str, count: int) -> list[Passage]:
        return self._index.around(passage_id, count)

    def passages_with(self, word: str) -> int:
        return self._index.passages_with(word)

    def passages(self) -> Iterable[Passage]:
        return self._index.passages()

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        return self.find_all(queries, k)

    def find(self, query: str, k: int) -> list[Passage]:
        return self.find_all([query], k)[0]

    def find_all(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Search as `search`, without awaiting. Call it from one thread at a time."""
        if time.monotonic() - self._looked >= _LOOK_S:
            self.look()
        return self._index.find_all(queries, k)

    def look(self) -> None:
        """Open the index again if it was changed."""
        state, self._looked = _state(self._directory), time.monotonic()
        if state == self._seen:
            return
        self._seen = state
        try:
            self._index, self._opened, self.files = self._opens(), state, files_of(self._directory)
            _LOG.warning("%s was changed: its %s passages are searched from now on.", self._directory, len(self))
        except EvoseekError as error:
            _LOG.error("%s was changed and cannot be opened, so the old state is searched: %s", self._directory, error)


def _state(directory: Path) -> object:
    """Return a value that differs after every change: the manifest is a new file each time."""
    try:
        found = (directory / NAME).stat()
        return found.st_ino, found.st_mtime_ns
    except OSError:
        return None
