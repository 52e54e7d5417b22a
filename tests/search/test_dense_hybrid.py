"""Fusing two rankings."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.search.spelling import LetterEncoder

from evoseek.config.registry import build
from evoseek.config.trust import VARIABLE
from evoseek.search import dense, lexical
from evoseek.search.calling import MORE
from evoseek.search.dense import DenseIndex, Hybrid, HybridIndex, fuse
from evoseek.search.lexical import LexicalIndex, from_stored
from evoseek.search.opening import open_built
from evoseek.types import Passage


def test_scores_are_fused_as_shares_of_the_best() -> None:
    """1: 2/3 * 4/4, 2: 2/3 * 1/4 + 1/3 * .8/.8, 3: 1/3 * .2/.8; 4 has less than nothing by vectors."""
    found = fuse({1: 4.0, 2: 1.0}, {2: 0.8, 3: 0.2, 4: -0.5})
    assert [place for place, _ in found] == [1, 2, 3, 4]
    assert [score for _, score in found] == pytest.approx([2 / 3, 1 / 2, 1 / 12, 0])
    assert fuse({}, {2: 0.5, 1: 0.5}) == [(2, pytest.approx(1 / 3)), (1, pytest.approx(1 / 3))]
    assert fuse({7: 0.0}, {7: 0.0}) == [(7, 0)]
    assert fuse({}, {}) == []


def test_texts_are_read_of_the_fused_passages_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{'a' * (n % 7 + 1)} {'b' * (n % 5 + 1)}" for n in range(40)]
    passages = [Passage(f"{n}#0", str(n), "", text) for n, text in enumerate(texts)]
    index = HybridIndex.build(tmp_path / "i", passages, LetterEncoder(), engine="hybrid")
    monkeypatch.setattr(dense, "DEPTH", 30)
    read: list[object] = []

    def counted(document: object, *score: float) -> Passage:
        read.append(document)
        return from_stored(document, *score)

    monkeypatch.setattr(lexical, "from_stored", counted)
    assert len(index.find("aaa bb", 3)) == 3
    assert len(read) == 3 + MORE


def test_places_are_those_of_the_passages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place names the passage that a search finds, by terms and by vectors."""
    texts = [f"{'a' * (n % 7 + 1)} {'b' * (n % 5 + 1)}" for n in range(20)]
    passages = [Passage(f"{n}#0", str(n), "", text) for n, text in enumerate(texts)]
    index = DenseIndex.build(tmp_path / "i", passages, LetterEncoder(), engine="hybrid")
    lexical_index, hybrid_index = LexicalIndex.open(tmp_path / "i"), HybridIndex.open(tmp_path / "i", LetterEncoder())
    monkeypatch.setattr(dense, "DEPTH", 9)
    left = [passage.id for passage in passages]
    assert [index.at(place).id for place in range(len(left))] == left
    for query in ("aa b", "bbbb", "aaaaa bb"):
        by_terms, near = index.rank(query, 9), index.nearest([query], len(left))[0]
        every = dict(zip(*near, strict=True))  # also those of terms that are not among the nearest
        assert [left[place] for place in by_terms] == [passage.id for passage in lexical_index.find(query, 9)] != []
        assert [left[place] for place in near[0][:9]] == [passage.id for passage in index.find(query, 9)]
        by_vectors = {place: every[place] for place in [*by_terms, *near[0][:9]]}
        fused = [(left[place], pytest.approx(score)) for place, score in fuse(by_terms, by_vectors)[:5]]
        assert [(found.id, found.score) for found in hybrid_index.find(query, 5)] == fused


def test_terms_and_vectors_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ "bb": the term finds 3 alone, whose vector is less alike than those of 1 and 2."""
    monkeypatch.setenv(VARIABLE, str(tmp_path))  # the manifest names this test's encoder
    texts = ("bbbb", "abb", "cc bb")
    passages = [Passage(f"{n}#0", str(n), "", text) for n, text in enumerate(texts, start=1)]
    DenseIndex.build(tmp_path / "i", passages, LetterEncoder(), engine="hybrid")
    index = open_built(tmp_path / "i")
    assert isinstance(index, HybridIndex)
    (found, nothing) = asyncio.run(index.search(["bb", "xyz"], 2))
    assert [passage.document_id for passage in found] == ["3", "1"]
    assert found[0].score == pytest.approx(2 / 3 + 1 / 3 / 2**0.5, abs=1e-5)
    assert nothing == []
    assert index.find("bb", 1) == found[:1]
    engine = build("search", Hybrid.Settings(index=str(tmp_path / "i")), None)
    assert [passage.document_id for passage in engine.find("bb", 1)] == ["3"]
    assert (len(engine), engine.get("2#0").text) == (3, "abb")


@pytest.mark.parametrize("kind", [LexicalIndex, DenseIndex, HybridIndex])
def test_a_part_finds_what_an_index_of_these_passages_would(tmp_path: Path, kind: type[LexicalIndex]) -> None:
    texts = [f"{'a' * (n % 7 + 1)} {'b' * (n % 5 + 1)}" for n in range(60)]
    passages = [Passage(f"{n}#0", str(n), f"t{n}", text) for n, text in enumerate(texts)]
    encoder = () if kind is LexicalIndex else (LetterEncoder(),)
    DenseIndex.build(tmp_path / "i", passages, LetterEncoder(), engine="hybrid")
    spans = ((3, 9), (30, 41))
    own = {f"{n}#0" for start, end in spans for n in range(start, end)}
    part = kind.open(tmp_path / "i", *encoder).within(spans)
    assert len(part) == len(own) == len(list(part.passages()))
    for query in ("aa b", "bbbb", "aaaaa bb"):
        found = part.find(query, 60)
        ids = {one.id for passage in found for one in (passage, *passage.copies)}
        assert ids <= own
        assert ids == own or kind is LexicalIndex
        assert [passage.id for passage in part.find(query, 3)] == [passage.id for passage in found[:3]]
