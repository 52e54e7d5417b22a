"""Opening an index with the engine that it was built for."""

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
_LOOK_S = 1.0  # seconds between two looks at whether the index was changed


def open_built(directory: Path, engine: str = "auto") -> LexicalIndex:
    """Return an index, to be searched by an engine with its default settings; auto: the one that it was built for.
    Raises as `LexicalIndex.open` and `DenseIndex.open`, and ConfigError for an engine that searches no index."""
    name = Manifest.read(directory).engine_for(engine)
    settings: SearchSettings = (settings_class("search", name) or SearchSettings)(name=name, index=str(directory))
    if not settings.reads_index:
        raise ConfigError(f"The index {directory} cannot be opened for the engine '{name}', which searches no index.")
    return build("search", settings, None)


class AsBuilt:
    """The index that `search.index` names, searched by the engine that it was built for, with its default settings."""

    Settings = IndexSettings

    @classmethod
    def build(cls, settings: IndexSettings, context: object) -> LexicalIndex:
        return open_built(index_directory(settings.index, setting="search.index"))


class LiveIndex:
    """An index for a server that stays, as an engine and a store of passages: a search that comes a second after a
    change on disk, or later, is answered from the new state. One that cannot be opened is logged, and the old one goes
    on being searched: its files stay mapped. `files` are those of `files_of`."""

    is_local = True

    def __init__(self, directory: Path, opens: Callable[[], LexicalIndex] | None = None) -> None:
        """`opens` opens the index, by default as `open_built`, and raises the same errors."""
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

    def passages_with(self, word: str) -> int:
        return self._index.passages_with(word)

    def passages(self) -> Iterable[Passage]:
        return self._index.passages()

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        return self.find_all(queries, k)

    def find(self, query: str, k: int) -> list[Passage]:
        return self.find_all([query], k)[0]

    def find_all(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """`search`, without awaiting. To be called from one thread at a time."""
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
    """Differs after every change: the manifest is a new file each time."""
    try:
        found = (directory / NAME).stat()
        return found.st_ino, found.st_mtime_ns
    except OSError:
        return None
