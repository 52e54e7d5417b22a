"""Dense search: the passages whose vectors are nearest to the query's; and hybrid search, by terms and vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal, Self, Unpack

from pydantic import Field

from evoseek.search.calling import MORE, distinct
from evoseek.search.encoders import Embedder, Reranker, check_encoder, encoder_of
from evoseek.search.lexical import BuildOptions, LexicalIndex, index_directory, write_index
from evoseek.search.manifest import Manifest, VectorsRecord, opened
from evoseek.search.settings import BuiltEngine, IndexSettings
from evoseek.search.vectors import MadeVectors, VectorFiles, embed_passages
from evoseek.text.scripts import well_formed
from evoseek.types import Passage


class DenseIndex(LexicalIndex):
    """An index that is searched by the vectors of its passages. Scores are inner products, from -1 to 1.

    The same index, encoder and query give the same passages. Equal scores (rounded to five decimals) are in the order
    in which the passages were added. A query without tokens finds nothing.
    """

    def __init__(self, directory: Path, manifest: Manifest, encoder: Embedder) -> None:
        super().__init__(directory, manifest)
        self._vectors = VectorFiles(directory / manifest.data, manifest.vectors_for("dense", directory))
        self._encoder = encoder

    @classmethod
    def build(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls,
        directory: Path,
        passages: Iterable[Passage],
        encoder: Embedder,
        *,
        engine: BuiltEngine = "dense",
        dtype: Literal["float32", "float16"] = "float32",
        progress: Callable[[int, int], None] = lambda done, of: None,
        made: MadeVectors | None = None,
        **options: Unpack[BuildOptions],
    ) -> Self:
        """Build as `LexicalIndex.build`, with vectors; the same call after an interruption keeps finished vectors.
        `made` are vectors of the same encoder to reuse for equal contents. `engine` is recorded as the engine of the
        index."""
        record = VectorsRecord(encoder=encoder.record, dtype=dtype)
        embed = partial(embed_passages, encoder=encoder, record=record, made=made, progress=progress)
        manifest = write_index(directory, passages, engine=engine, embed=embed, **options)
        return cls(directory, manifest, encoder)

    @classmethod
    def open(cls, directory: Path, encoder: Embedder | None = None) -> Self:
        """Open for searching, by default with the encoder that the manifest names.

        Raises as `LexicalIndex.open`; SearchIndexError if there are no vectors, or another encoder's; ConfigError if
        the encoder cannot be loaded.
        """

        def opens(manifest: Manifest) -> Self:
            record = manifest.vectors_for("dense", directory).encoder
            own = encoder or encoder_of(record, directory)
            check_encoder(own, record)
            manifest.check_files(directory)
            return cls(directory, manifest, own)

        return opened(directory, opens)

    def find_all(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        first = zip(queries, self.nearest(queries, k + MORE), strict=True)
        return [distinct(partial(self._near, query, (k + MORE, *near)), k) for query, near in first]

    def _near(self, query: str, known: tuple[int, list[int], list[float]], k: int) -> list[Passage]:
        """Return the k best passages by vectors. `known` is a number of passages, with their places and scores."""
        rows, scores = known[1:] if k == known[0] else self.nearest([query], k)[0]
        return [replace(self.at(row), score=score) for row, score in zip(rows, scores, strict=True)]

    def nearest(self, queries: Sequence[str], k: int) -> list[tuple[list[int], list[float]]]:
        """Return, for each query, the places in `passages` of the best ones by vectors, best first, and their scores.
        No text is read."""
        if not queries:
            return []
        texts = [well_formed(query) for query in queries]
        return self._vectors.nearest(self._encoder.queries(texts), k, self._spans)

    def at(self, place: int) -> Passage:
        """Return the passage at a place in `passages`."""
        return self.get(self._vectors.id(place))


class Dense:
    """Returns the passages of the index `search.index` whose vectors are nearest to the query's."""

    class Settings(IndexSettings):
        """Search by vectors."""

        needs_vectors = True

    @classmethod
    def build(cls, settings: Settings, context: object) -> DenseIndex:
        return DenseIndex.open(index_directory(settings.index, setting="search.index"))


DEPTH = 100  # passages of each ranking to fuse, or k if that is more
RERANKED = 50  # fused passages that a reranker sorts, or k if that is more
TERMS = 2 / 3  # the weight of the score by terms; the score by vectors has the rest


def fuse(by_terms: Mapping[int, float], by_vectors: Mapping[int, float]) -> list[tuple[int, float]]:
    """Return passages with their fused scores, best first: the weighted sum of both scores, each divided by its
    maximum.

    A missing or negative score counts as 0. Equal scores keep the order of the passages, first the ones by terms."""
    scores = dict.fromkeys([*by_terms, *by_vectors], 0.0)
    for weight, found in ((TERMS, by_terms), (1 - TERMS, by_vectors)):
        best = max(found.values(), default=0.0)
        for place, score in found.items():
            scores[place] += weight * max(score, 0.0) / best if best > 0 else 0.0
    return sorted(scores.items(), key=lambda item: -item[1])


class HybridIndex(DenseIndex):
    """An index with vectors, searched by terms and by vectors: the scores of the best of both are fused. A `reranker`
    sorts the best of these. Scores are the fused ones (0 to 1), or the reranker's."""

    reranker: Reranker | None = None

    def find_all(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        depth, found = max(k, DEPTH), list[list[Passage]]()
        vectors = self._encoder.queries([well_formed(query) for query in queries])
        for query, vector, near in zip(
            queries, vectors, self._vectors.nearest(vectors, depth, self._spans), strict=True
        ):
            terms = self.rank(query, depth)
            best = fuse(terms, self._vectors.scores(vector, list(terms)) | dict(zip(*near, strict=True)))
            fused = partial(self._passages, best)  # read only the texts of inspected passages
            passages = distinct(fused, k if self.reranker is None else max(k, RERANKED))
            found.append(passages if self.reranker is None else self.reranker.rerank(query, passages)[:k])
        return found

    def _passages(self, best: Sequence[tuple[int, float]], k: int) -> list[Passage]:
        return [replace(self.at(place), score=score) for place, score in best[:k]]


class Hybrid:
    """Searches the index `search.index` by terms and vectors, with fused scores (Bruch, Gai and Ingber, ACM TOIS
    2023)."""

    class Settings(Dense.Settings):
        """Search by terms and by vectors."""

        name: str = Field(default="hybrid", description="Name of the engine.")
        reranker: str = Field(
            default="",
            description="Directory or Hugging Face name of a cross-encoder that sorts the best passages again.",
        )

    @classmethod
    def build(cls, settings: Settings, context: object) -> HybridIndex:
        index = HybridIndex.open(index_directory(settings.index, setting="search.index"))
        if settings.reranker:
            index.reranker = Reranker(settings.reranker)
        return index
