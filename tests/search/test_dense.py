"""The dense index: what it finds, resuming, and refusing another encoder."""

from __future__ import annotations

import asyncio
import json
import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.raising import raises
from tests.search.spelling import LetterEncoder

from evoseek.config.registry import build
from evoseek.config.trust import VARIABLE
from evoseek.errors import ConfigError, SearchIndexError
from evoseek.search.dense import Dense, DenseIndex
from evoseek.search.lexical import LexicalIndex, check_index
from evoseek.search.manifest import Manifest
from evoseek.search.opening import open_built
from evoseek.search.settings import SearchSettings
from evoseek.search.vectors import CHUNK, MadeVectors
from evoseek.types import Passage

TEXTS = {"1": "aaab", "2": "bbbb", "3": "ccdd", "4": "abcd"}


def passages(texts: dict[str, str]) -> list[Passage]:
    return [Passage(f"{name}#0", name, "", text, 0, len(text)) for name, text in texts.items()]


def ids(found: list[Passage]) -> list[str]:
    return [passage.document_id for passage in found]


@pytest.fixture(autouse=True)
def trusting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifests in a test's own folder may name this module's encoder."""
    monkeypatch.setenv(VARIABLE, str(tmp_path))


@pytest.fixture
def index(tmp_path: Path) -> DenseIndex:
    return DenseIndex.build(tmp_path / "index", passages(TEXTS), LetterEncoder())


def test_it_finds_by_inner_product(index: DenseIndex) -> None:
    """b = (0, 1, 0, 0) with aaab = (3, 1, 0, 0) / sqrt(10), abcd = (1, 1, 1, 1) / 2."""
    (by_b, by_c, nothing) = asyncio.run(index.search(["b", "c", "xyz"], 3))
    assert (ids(by_b), ids(by_c), nothing) == (["2", "4", "1"], ["3", "4", "1"], [])
    assert [passage.score for passage in by_b] == pytest.approx([1, 0.5, 0.1**0.5], abs=1e-5)
    assert by_b[0].text == "bbbb"
    assert index.find("b", 1)[0] == by_b[0]
    assert asyncio.run(index.search([], 3)) == []
    assert index.find("\ud800b", 1) == by_b[:1]
    assert ([passage.id for passage in index.passages()], len(index)) == (["1#0", "2#0", "3#0", "4#0"], 4)
    assert LexicalIndex.open(index.directory).find("abcd", 3)[0].id == "4#0"


def test_vectors_of_the_same_texts_are_not_made_again(index: DenseIndex) -> None:
    """Whatever their ids and places: the index is that of a fresh build."""
    encoder, directory = LetterEncoder(), index.directory
    made = MadeVectors(directory, index.manifest, index.passages())
    texts = {"0": "dd", "renamed": "bbbb", "1": "aaab", "4": "abc"}
    again = DenseIndex.build(directory, passages(texts), encoder, made=made)
    assert encoder.calls == [["\ndd", "\nabc"]]
    fresh = DenseIndex.build(directory.with_name("fresh"), passages(texts), LetterEncoder())
    for query in ("a", "b", "cd"):
        assert again.find(query, 9) == fresh.find(query, 9)
    assert again.manifest.identity == fresh.manifest.identity


def test_terms_are_kept_when_the_encoder_fails(tmp_path: Path) -> None:
    """So nothing is built again when it is repaired."""
    with pytest.raises(KeyboardInterrupt):
        DenseIndex.build(tmp_path / "i", passages(TEXTS), LetterEncoder(limit=0), key="k")
    (building,) = (tmp_path / "i").glob("building-*")
    stores = {path.name for path in building.glob("*.store")}
    index = DenseIndex.build(tmp_path / "i", passages(TEXTS), LetterEncoder(), key="k")
    assert {path.name for path in (tmp_path / "i" / index.manifest.data).glob("*.store")} == stores


@pytest.fixture
def saving_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evoseek.search.vectors._SAVE_S", 0)


@pytest.mark.usefixtures("saving_at_once")
def test_embedding_that_was_interrupted_resumes(tmp_path: Path) -> None:
    many = passages({str(number): "abcd"[number % 4] * (number % 7 + 1) for number in range(4 * CHUNK + 10)})
    with pytest.raises(KeyboardInterrupt):
        DenseIndex.build(tmp_path / "i", many, LetterEncoder(limit=2 * CHUNK))
    with raises("index.missing", match="building it was interrupted"):
        DenseIndex.open(tmp_path / "i")
    with (tmp_path / "i" / "embedding.bin").open("ab") as file:  # a row that was being written
        file.write(b"123")
    told: list[tuple[int, int]] = []
    encoder = LetterEncoder()
    index = DenseIndex.build(tmp_path / "i", many, encoder, progress=lambda done, of: told.append((done, of)))
    assert [len(texts) for texts in encoder.calls] == [CHUNK, CHUNK, 10]
    assert told[0] == (3 * CHUNK, len(many))
    whole = DenseIndex.build(tmp_path / "whole", many, LetterEncoder())
    for one, other in ((index, whole), (whole, index)):
        assert one.manifest.files["vectors.bin"] == other.manifest.files["vectors.bin"]
    assert [path.name for path in (tmp_path / "i").glob("embedding*")] == []


@pytest.mark.usefixtures("saving_at_once")
def test_vectors_whose_file_lost_its_end_are_made_again(tmp_path: Path) -> None:
    many = passages({str(number): "abcd"[number % 4] for number in range(CHUNK + 10)})
    with pytest.raises(KeyboardInterrupt):
        DenseIndex.build(tmp_path / "i", many, LetterEncoder(limit=CHUNK))
    os.truncate(tmp_path / "i" / "embedding.bin", 7)
    encoder = LetterEncoder()
    DenseIndex.build(tmp_path / "i", many, encoder)
    assert [len(texts) for texts in encoder.calls] == [CHUNK, 10]


def test_a_build_that_was_killed_at_its_very_end_leaves_the_index_to_later_ones(tmp_path: Path) -> None:
    """Its vectors are then a link to those of the index."""
    index = DenseIndex.build(tmp_path / "i", passages(TEXTS), LetterEncoder())
    vectors = tmp_path / "i" / index.manifest.data / "vectors.bin"
    os.link(vectors, tmp_path / "i" / "embedding.bin")
    before = vectors.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        DenseIndex.build(tmp_path / "i", passages({"new": "ab"}), LetterEncoder(limit=0), key="k")
    assert vectors.read_bytes() == before
    assert len(DenseIndex.open(tmp_path / "i")) == len(TEXTS)


@pytest.mark.parametrize("cls", [LexicalIndex, DenseIndex])
def test_an_index_that_is_replaced_while_it_is_opened_is_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cls: type[LexicalIndex]
) -> None:
    build, check, left = partial(DenseIndex.build, tmp_path / "i"), Manifest.check_files, [{"a": "new"}, {"b": "newer"}]

    def replaced(manifest: Manifest, directory: Path) -> None:
        if left:
            build(passages(left.pop(0)), LetterEncoder())
        check(manifest, directory)

    build(passages(TEXTS), LetterEncoder())
    monkeypatch.setattr(Manifest, "check_files", replaced)
    assert [passage.text for passage in cls.open(tmp_path / "i").passages()] == ["newer"]


@pytest.mark.parametrize("state", ["[1]", '{"rows": 1}', "{", '{"key": "x", "rows": 512}'])
def test_a_state_that_is_not_of_this_change_is_not_used(tmp_path: Path, state: str) -> None:
    (tmp_path / "i").mkdir()
    (tmp_path / "i" / "embedding.json").write_text(state)
    (tmp_path / "i" / "embedding.bin").write_bytes(b"\1" * 100_000)
    assert ids(DenseIndex.build(tmp_path / "i", passages(TEXTS), LetterEncoder()).find("b", 1)) == ["2"]


def test_another_encoder_is_refused(index: DenseIndex) -> None:
    with pytest.raises(SearchIndexError, match=r"built with another encoder: weights is '2' here and '1' in the index"):
        DenseIndex.open(index.directory, LetterEncoder(weights="2"))
    record = DenseIndex.open(index.directory).manifest.vectors
    assert record is not None
    assert record.encoder == LetterEncoder().record


def test_damage_to_the_vectors_is_found(index: DenseIndex) -> None:
    for name in ("vectors.bin", "ids.bin", "ids_ends.bin"):
        path = index.directory / index.manifest.data / name
        data = path.read_bytes()
        path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
        with raises("index.damaged", match=f"damaged: .*{name}"):
            DenseIndex.open(index.directory)
        path.write_bytes(data)


def test_an_index_without_vectors_says_how_to_get_them(tmp_path: Path) -> None:
    LexicalIndex.build(tmp_path / "i", passages(TEXTS))
    for attempt in (
        lambda: DenseIndex.open(tmp_path / "i", LetterEncoder()),
        lambda: check_index(str(tmp_path / "i"), setting="search.index", engine=Dense.Settings(name="dense")),
        lambda: build("search", SearchSettings(name="dense", index=str(tmp_path / "i")), None),
    ):
        with raises("index.no_vectors", match=r"has no vectors.*evoseek index --engine dense"):
            attempt()
    with raises("index.not_given", match=r"set search\.index"):
        build("search", SearchSettings(name="dense"), None)


def test_the_manifest_records_how_it_was_built(tmp_path: Path) -> None:
    index = DenseIndex.build(tmp_path / "i", passages(TEXTS), LetterEncoder(), max_words=40, dtype="float16")
    written = json.loads((tmp_path / "i" / "manifest.json").read_text())
    assert written["vectors"] == {"encoder": LetterEncoder().record.model_dump(), "dtype": "float16"}
    assert (written["max_words"], written["engine"]) == (40, "dense")
    assert isinstance(open_built(tmp_path / "i"), DenseIndex)
    assert not isinstance(open_built(tmp_path / "i", "lexical"), DenseIndex)
    assert isinstance(build("search", SearchSettings(index=str(tmp_path / "i")), None), DenseIndex)
    plain = LexicalIndex.build(tmp_path / "plain", passages(TEXTS))
    assert plain.manifest.identity != index.manifest.identity


def test_an_encoder_that_gives_something_else_is_told(tmp_path: Path) -> None:
    class Wrong(LetterEncoder):
        def passages(self, texts):
            return np.full((len(texts), 4), np.nan, np.float32)

    with pytest.raises(ConfigError, match="numbers that are not finite for 4 passages"):
        DenseIndex.build(tmp_path / "i", passages(TEXTS), Wrong())
    assert not (tmp_path / "i" / "manifest.json").exists()
