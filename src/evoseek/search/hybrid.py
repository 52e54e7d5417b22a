"""Hybrid search: the rankings by terms and by vectors, fused (Cormack, Clarke and Buettcher, SIGIR 2009)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pydantic import Field

from evoseek.search.dense import DenseIndex
from evoseek.search.encoders import Reranker
from evoseek.search.lexical import index_directory
from evoseek.search.settings import SearchSettings
from evoseek.types import Passage

RANK_CONSTANT = 60  # of the paper: how little the first places count beyond the next ones
DEPTH = 100  # passages of each ranking that are fused, or k if that is more
RERANKED = 50  # fused passages that a reranker puts into its order, or k if that is more


def fuse(rankings: Sequence[Sequence[int]], k: int) -> list[tuple[int, float]]:
    """The k best passages of several rankings by reciprocal-rank fusion, each with its score: the sum of
    1 / (60 + rank) over the rankings that hold it, the rank of the first being 1. Equal scores are in the order of the
    first ranking, then the second."""
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, place in enumerate(ranking, start=1):
            scores[place] = scores.get(place, 0.0) + 1 / (RANK_CONSTANT + rank)
    return sorted(scores.items(), key=lambda item: -item[1])[:k]


class HybridIndex(DenseIndex):
    """An index with vectors, searched by terms and by vectors: the best passages of both are fused. With a `reranker`,
    the best of these are put into its order. Scores are the fused ones, or the reranker's."""

    reranker: Reranker | None = None

    def find_all(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        depth, found = max(k, DEPTH), list[list[Passage]]()
        for query, (near, _) in zip(queries, self.nearest(queries, depth), strict=True):
            best = fuse((self.rank(query, depth), near), k if self.reranker is None else max(k, RERANKED))
            passages = [replace(self.at(place), score=score) for place, score in best]  # texts of these alone are read
            found.append(passages if self.reranker is None else self.reranker.rerank(query, passages)[:k])
        return found


class Hybrid:
    """The part `hybrid`: terms and vectors of the index that `search.index` names."""

    class Settings(SearchSettings):
        """Search by terms and by vectors."""

        name: str = Field(default="hybrid", description="Name of the engine.")
        reranker: str = Field(
            default="",
            description="Directory or Hugging Face name of a cross-encoder that puts the best into a new order.",
        )

    @classmethod
    def build(cls, settings: Settings, context: object) -> HybridIndex:
        """The index, opened. Raises as `DenseIndex.open`, and ConfigError for a reranker that cannot be loaded."""
        index = HybridIndex.open(index_directory(settings.index, setting="search.index"))
        if settings.reranker:
            index.reranker = Reranker(settings.reranker)
        return index
