"""The index command: what it refuses, and that refusing leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from evoseek.commands.index import build_index
from evoseek.errors import DataError, SearchIndexError


def build(corpus: Path, directory: Path) -> None:
    build_index(corpus, directory, stemming="none", max_words=100, console=Console(quiet=True))


@pytest.mark.parametrize("place", ["docs", "docs/sub", "docs/../docs/sub"])
def test_an_index_in_its_own_corpus_is_refused(place: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("Kalo is a city.")
    with pytest.raises(SearchIndexError, match="outside the corpus"):
        build(tmp_path / "docs", tmp_path / place)
    assert [path.name for path in (tmp_path / "docs").iterdir()] == ["a.txt"]
    build(tmp_path / "docs", tmp_path / "index")
    assert (tmp_path / "index" / "manifest.json").is_file()


@pytest.mark.parametrize(("name", "phrase"), [("x" * 5000, "cannot be read"), ("missing", "no corpus")])
def test_a_corpus_that_cannot_be_read_is_said_before_anything_is_made(name: str, phrase: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=phrase):
        build(tmp_path / name, tmp_path / "index")
    assert not (tmp_path / "index").exists()
