"""Dense search: the passages whose vectors are nearest to the query's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pydantic import Field

from evoseek.search.analyser import Analyser
from evoseek.search.embedding import Embedder, MadeVectors
from evoseek.search.encoders.encoder import Encoder, check_encoder, encoder_of
from evoseek.search.lexical import LexicalIndex, index_directory
from evoseek.search.manifest import Manifest
from evoseek.search.settings import SearchSettings
from evoseek.search.vectors import VectorFiles
from evoseek.types import Passage


class DenseIndex:
    """An index whose passages have vectors, searched by these. Scores are inner products, from -1 to 1.

    The same index and encoder give the same passages for the same query; equal scores (of five decimals) are in the
    order in which the passages were added. `store` is the same index, searched by its terms.
    """

    is_local = True

    def __init__(self, store: LexicalIndex, encoder: Encoder) -> None:
        """Use `build` or `open`."""
        self.store, self._encoder = store, encoder
        self._load()

    @classmethod
    def build(
        cls,
        directory: Path,
        passages: Iterable[Passage],
        encoder: Encoder,
        *,
        analyser: Analyser | None = None,
        max_words: int | None = None,
        engine: Literal["dense", "hybrid"] = "dense",
        dtype: Literal["float32", "float16"] = "float32",
        progress: Callable[[int, int], None] = lambda done, of: None,
        sources: Callable[[], str] | None = None,
        made: MadeVectors | None = None,
    ) -> DenseIndex:
        """Build from a stream of passages, taking the place of an index that is there; the same call after an
        interruption keeps the vectors that were made. `made` are vectors of the same encoder that are taken where they
        fit. Raises as `LexicalIndex.build`, which says what `sources` is."""
        embedder = Embedder(encoder, dtype=dtype, progress=progress, made=made)
        store = LexicalIndex.build(
            directory,
            passages,
            analyser=analyser or Analyser(),
            max_words=max_words,
            engine=engine,
            embedder=embedder,
            sources=sources,
        )
        return cls(store, encoder)

    @classmethod
    def open(
        cls, directory: Path, encoder: Encoder | None = None, *, device: str = "auto", verify: bool = True
    ) -> DenseIndex:
        """Open for searching, with the encoder that its manifest names unless one is given.

        Raises as `LexicalIndex.open`; SearchIndexError if there are no vectors or they are another encoder's;
        ConfigError if the encoder cannot be loaded.
        """
        record = Manifest.read(directory).vectors_for("dense", directory).encoder
        if encoder is None:
            encoder = encoder_of(record, directory, device=device)
        check_encoder(encoder, record)
        return cls(LexicalIndex.open(directory, verify=verify), encoder)

    def _load(self) -> None:
        manifest = self.store.manifest
        record = manifest.vectors_for("dense", self.store.directory)
        self._vectors = VectorFiles(self.store.directory / manifest.data, record)
        self._embedder = Embedder(self._encoder, dtype=record.dtype)

    def __len__(self) -> int:
        """Number of passages."""
        return len(self.store)

    def get(self, passage_id: str) -> Passage:
        """The passage with this id. DataError if there is none."""
        return self.store.get(passage_id)

    def passages(self) -> Iterable[Passage]:
        """Every passage, in the order in which they were added."""
        return self.store.passages()

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """For each query at most k passages, best first, each with its score. A query without tokens finds nothing."""
        return self.find_all(queries, k)

    def find(self, query: str, k: int) -> list[Passage]:
        """`search` for one query, without awaiting."""
        return self.find_all([query], k)[0]

    def find_all(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """`search`, without awaiting."""
        found = self._nearest(queries, k)
        return [
            [replace(self.at(row), score=score) for row, score in zip(rows, scores, strict=True)]
            for rows, scores in found
        ]

    def rank(self, queries: Sequence[str], k: int) -> list[list[int]]:
        """The places of these passages among `passages`, best first; no text is read."""
        return [rows for rows, _ in self._nearest(queries, k)]

    def at(self, place: int) -> Passage:
        """The passage at a place among `passages`."""
        return self.get(self._vectors.id(place))

    def _nearest(self, queries: Sequence[str], k: int) -> list[tuple[list[int], list[float]]]:
        if not queries:
            return []
        texts = [query.encode(errors="replace").decode() for query in queries]  # a tokenizer refuses lone surrogates
        return self._vectors.nearest(self._encoder.queries(texts), k)

    def add(self, passages: Iterable[Passage]) -> None:
        """Add passages, all or none; only these are encoded. Raises as `LexicalIndex.add`."""
        self.store.add(passages, embedder=self._embedder)
        self._load()

    def delete(self, document_ids: Iterable[str]) -> int:
        """Delete all passages of these documents; unknown ids are ignored. Returns the number of deleted passages."""
        deleted = self.store.delete(document_ids, embedder=self._embedder)
        self._load()
        return deleted


class DenseSettings(SearchSettings):
    """Search by vectors."""

    name: str = Field(default="dense", description="Name of the engine.")
    device: str = Field(default="auto", description="Device of the encoder: cpu, cuda or auto.")


class Dense:
    """The part `dense`: the vectors of the index that `search.index` names."""

    Settings = DenseSettings

    @classmethod
    def build(cls, settings: DenseSettings, context: object) -> DenseIndex:
        """The index, opened. Raises as `DenseIndex.open`."""
        directory = index_directory(settings.index, setting="search.index")
        return DenseIndex.open(directory, device=settings.device)
