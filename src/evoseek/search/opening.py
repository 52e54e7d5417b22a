"""Opens an index with the engine for which it was built."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from pathlib import Path

from evoseek.config.registry import build, settings_class
from evoseek.errors import ConfigError, EvoseekError
from evoseek.search.lexical import LexicalIndex, index_directory
from evoseek.search.manifest import NAME, Manifest, opened
from evoseek.search.settings import IndexSettings, SearchSettings
from evoseek.search.sources import FileOrigin, Sources, files_of, is_in, places_in, sources_of
from evoseek.types import Passage

_LOG = logging.getLogger(__name__)


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
    """An index for a long-running server, as an engine and a store of passages: after a change on disk, searches use
    the new state. If the new state cannot be opened, this is logged and the old one stays in use: its files stay
    mapped."""

    is_local = True

    def __init__(self, directory: Path, opens: Callable[[], LexicalIndex] | None = None) -> None:
        """Open the index with `opens`, by default `open_built`; raises the same errors."""
        self._directory, self._opens = directory, opens or partial(open_built, directory)
        self._opened = self._seen = _state(directory)
        self.state = self._open()
        self._whole, self._folders = self, tuple[str, ...]()
        self._part = self.state[0], self.state[0]

    def within(self, folders: Collection[str]) -> LiveIndex:
        """Return the part of the index in some folders of its corpus, which changes as the whole does: nothing else is
        found, counted, listed or given by id. Raises ConfigError for an index without a record of its files."""
        part = copy(self)
        part._folders, part._part = tuple(folders), (self.state[0], self._cut(folders))
        return part

    def _open(self) -> tuple[LexicalIndex, Sources | None, Mapping[str, FileOrigin]]:
        """Open the index, with the record of its own files even if it is replaced meanwhile, and the files."""

        def opens(manifest: Manifest) -> tuple[LexicalIndex, Sources | None, Mapping[str, FileOrigin]]:
            index = self._opens()
            return index, (sources := sources_of(index)), files_of(sources)

        return opened(self._directory, opens)

    def _cut(self, folders: Collection[str]) -> LexicalIndex:
        index, sources, _ = self._whole.state
        if sources is None:
            raise ConfigError(
                f"A key with folders needs an index that records its files, and {index.directory} does not. Build it "
                "again with `evoseek index`.",
                code="index.no_files",
            )
        return index.within(places_in(sources, folders))

    @property
    def now(self) -> LexicalIndex:
        """The opened state."""
        index = self._whole.state[0]
        if self._folders and self._part[0] is not index:
            self._part = index, self._cut(self._folders)
        return self._part[1] if self._folders else index

    @property
    def files(self) -> Mapping[str, FileOrigin]:
        """The result of `files_of`."""
        files = self._whole.state[2]
        return {name: files[name] for name in files if is_in(name, self._folders)} if self._folders else files

    @property
    def is_current(self) -> bool:
        return _state(self._directory) == self._whole._opened

    def __len__(self) -> int:
        return len(self.now)

    def get(self, passage_id: str) -> Passage:
        return self.now.get(passage_id)

    def around(self, passage_id: str, count: int) -> list[Passage]:
        return self.now.around(passage_id, count)

    def passages_with(self, word: str) -> int:
        return self.now.passages_with(word)

    def passages(self) -> Iterable[Passage]:
        return self.now.passages()

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        return self.find_all(queries, k)

    def find(self, query: str, k: int) -> list[Passage]:
        return self.find_all([query], k)[0]

    def find_all(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Search as `search`, without awaiting. Call it from one thread at a time."""
        self.look()
        return self.now.find_all(queries, k)

    def look(self) -> None:
        """Open the index again if it was changed."""
        if self._whole is not self:
            return self._whole.look()
        if (state := _state(self._directory)) == self._seen:
            return None
        self._seen = state
        try:
            self.state, self._opened = self._open(), state
            _LOG.warning("%s was changed: its %s passages are searched from now on.", self._directory, len(self))
        except (EvoseekError, OSError) as error:
            _LOG.error("%s was changed and cannot be opened, so the old state is searched: %s", self._directory, error)


def _state(directory: Path) -> object:
    """Return a value that differs after every change: the manifest is a new file each time."""
    try:
        found = (directory / NAME).stat()
        return found.st_ino, found.st_mtime_ns
    except OSError:
        return None
