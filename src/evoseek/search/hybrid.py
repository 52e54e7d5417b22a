"""Hybrid search: the rankings by terms and by vectors, fused (Cormack, Clarke and Buettcher, SIGIR 2009)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import Field

from evoseek.search.dense import DenseIndex, DenseSettings
from evoseek.search.encoders.encoder import Encoder
from evoseek.search.encoders.sentence import Reranker
from evoseek.search.lexical import index_directory
from evoseek.types import Passage

RANK_CONSTANT = 60  # of the paper: how little the first places count beyond the next ones


def fuse(rankings: Sequence[Sequence[int]], k: int) -> list[tuple[int, float]]:
    """The k best passages of several rankings by reciprocal-rank fusion, each with its score: the sum of
    1 / (60 + rank) over the rankings that hold it, the rank of the first being 1. Equal scores are in the order of the
    first ranking, then the second."""
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, place in enumerate(ranking, start=1):
            scores[place] = scores.get(place, 0.0) + 1 / (RANK_CONSTANT + rank)
    return sorted(scores.items(), key=lambda item: -item[1])[:k]


class HybridIndex:
    """An index with vectors, searched by terms and by vectors: the best `depth` passages of both are fused. With a
    reranker, the best `reranked` of these are put into its order."""

    is_local = True

    def __init__(
        self, dense: DenseIndex, *, depth: int = 100, reranker: Reranker | None = None, reranked: int = 50
    ) -> None:
        self.dense, self._depth, self._reranker, self._reranked = dense, depth, reranker, reranked

    @classmethod
    def open(cls, directory: Path, encoder: Encoder | None = None, *, verify: bool = True) -> HybridIndex:
        """Open an index that was built with vectors. Raises as `DenseIndex.open`."""
        return cls(DenseIndex.open(directory, encoder, verify=verify))

    def __len__(self) -> int:
        """Number of passages."""
        return len(self.dense)

    def get(self, passage_id: str) -> Passage:
        """The passage with this id. DataError if there is none."""
        return self.dense.get(passage_id)

    def passages(self) -> Iterable[Passage]:
        """Every passage, in the order in which they were added."""
        return self.dense.passages()

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """For each query at most k passages, best first, each with its fused score, or the reranker's."""
        return self.find_all(queries, k)

    def find(self, query: str, k: int) -> list[Passage]:
        """`search` for one query, without awaiting."""
        return self.find_all([query], k)[0]

    def find_all(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """`search`, without awaiting."""
        depth = max(k, self._depth)
        dense = self.dense.rank(queries, depth)
        lexical = [self.dense.store.rank(query, depth) for query in queries]
        return [self._fused(query, pair, k) for query, *pair in zip(queries, lexical, dense, strict=True)]

    def _fused(self, query: str, rankings: Sequence[Sequence[int]], k: int) -> list[Passage]:
        """The best of all rankings. Texts are read only of these."""
        best = fuse(rankings, k if self._reranker is None else max(k, self._reranked))
        passages = [replace(self.dense.at(place), score=score) for place, score in best]
        return passages if self._reranker is None else self._reranker.rerank(query, passages)[:k]


class HybridSettings(DenseSettings):
    """Search by terms and by vectors."""

    name: str = Field(default="hybrid", description="Name of the engine.")
    reranker: str = Field(
        default="", description="Directory or Hugging Face name of a cross-encoder that puts the best into a new order."
    )


class Hybrid:
    """The part `hybrid`: terms and vectors of the index that `search.index` names."""

    Settings = HybridSettings

    @classmethod
    def build(cls, settings: HybridSettings, context: object) -> HybridIndex:
        """The index, opened. Raises as `DenseIndex.open`, and ConfigError for a reranker that cannot be loaded."""
        directory = index_directory(settings.index, setting="search.index")
        reranker = Reranker(settings.reranker, device=settings.device) if settings.reranker else None
        return HybridIndex(DenseIndex.open(directory, device=settings.device), reranker=reranker)
