"""An index that is opened anew when it was changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console
from tests.raising import raises

from evoseek.assembly.sources import load_settings
from evoseek.cli.settings import check_searched
from evoseek.errors import ConfigError
from evoseek.search.indexing import IndexPlan, build_index, update_index
from evoseek.search.lexical import LexicalIndex
from evoseek.search.opening import LiveIndex, open_built
from evoseek.search.settings import IndexSettings
from evoseek.types import Passage


def build(directory: Path, *texts: str) -> None:
    LexicalIndex.build(directory, [Passage(f"p{number}", "", text, "d") for number, text in enumerate(texts)])


def test_an_engine_that_no_index_is_built_for_is_refused(tmp_path: Path) -> None:
    build(tmp_path / "index", "one")
    assert type(open_built(tmp_path / "index", "lexical")) is LexicalIndex
    with pytest.raises(ConfigError, match="cannot be opened for the engine 'remote', which searches no index"):
        open_built(tmp_path / "index", "remote")


class ShortestIndex(LexicalIndex):
    """What is found, the shortest titles first."""

    def find_all(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        return [sorted(found, key=lambda one: len(one.title)) for found in super().find_all(queries, k)]


class Shortest:
    """An engine over an index, as a user adds one: in one file."""

    class Settings(IndexSettings):
        """Its settings."""

        needs_vectors = True

    @classmethod
    def build(cls, settings: Settings, context: object) -> ShortestIndex:
        return ShortestIndex.open(Path(settings.index))


def test_an_engine_over_an_index_says_so_itself(tmp_path: Path) -> None:
    name, directory = f"{__name__}:Shortest", tmp_path / "index"
    build(directory, "one pump, and a pump", "a pump")
    settings = load_settings(options={"search.name": name, "search.index": str(directory)})
    assert settings.searches_index
    assert settings.examines_index
    assert not load_settings(options={"search.name": "remote", "search.url": "http://localhost/"}).examines_index
    for opened in (open_built(directory, name), LiveIndex(directory, partial(open_built, directory, name))):
        assert [passage.id for passage in opened.find("pump", 2)] == ["p1", "p0"]
    with raises("index.no_vectors", match=f"no vectors, which the engine {name} needs"):
        check_searched(settings)


def test_a_change_is_seen_and_one_that_cannot_be_opened_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    build(tmp_path / "index", "one")
    index = LiveIndex(tmp_path / "index")
    build(tmp_path / "index", "one", "two")
    assert not index.is_current
    index.look()
    assert (len(index), index.is_current) == (2, True)
    manifest = tmp_path / "index" / "manifest.json"
    (tmp_path / "broken").write_text("{")
    (tmp_path / "broken").replace(manifest)
    index.look()
    index.look()
    assert (len(index), index.is_current) == (2, False)
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]
    assert "cannot be opened, so the old state is searched" in caplog.text


def test_the_old_state_is_searched_while_a_new_one_is_built(tmp_path: Path) -> None:
    build(tmp_path / "i", "old kalo")
    live = LiveIndex(tmp_path / "i")

    def passages() -> Iterator[Passage]:
        for number in range(3):
            live.look()
            assert [passage.title for passage in live.find("kalo", 3)] == ["old kalo"]
            yield Passage(f"new{number}", "", f"new kalo {number}", "d")

    LexicalIndex.build(tmp_path / "i", passages())
    live.look()
    assert len(live.find("kalo", 9)) == 3


def test_a_part_has_only_the_passages_of_its_folders(tmp_path: Path) -> None:
    for name in ("a/one.md", "a/two.md", "ab/three.md", "b.md", "c/four.md"):
        path = tmp_path / "corpus" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"The pump of {name.replace('/', ' ')} is green.")
    build_index(tmp_path / "corpus", tmp_path / "index", IndexPlan(), console=Console(quiet=True))
    whole = LiveIndex(tmp_path / "index")
    part = whole.within(["a", "c/four.md"])
    own = {"a/one.md#0", "a/two.md#0", "c/four.md#0"}
    assert (len(part), len(whole), set(part.files)) == (3, 5, {"a/one.md", "a/two.md", "c/four.md"})
    assert {passage.id for passage in part.passages()} == {passage.id for passage in part.find("pump", 9)} == own
    assert (part.passages_with("pump"), part.passages_with("three"), whole.passages_with("three")) == (3, 0, 1)
    assert part.get("a/one.md#0").file == "a/one.md"
    assert {passage.id for passage in part.around("a/two.md#0", 9)} == own
    for id in ("b.md#0", "ab/three.md#0", "none#0"):
        with raises("index.no_passage"):
            part.get(id)
        with raises("index.no_passage"):
            part.around(id, 9)
    (tmp_path / "corpus" / "a" / "another.md").write_text("A new pump.")
    (tmp_path / "corpus" / "a" / "one.md").unlink()
    update_index(tmp_path / "corpus", tmp_path / "index", device=None, console=Console(quiet=True))
    assert {passage.file for passage in part.find("pump", 9)} == {"a/another.md", "a/two.md", "c/four.md"}
    assert len(whole.within(["none"])) == len(whole.within(["none"]).find("pump", 9)) == 0


def test_an_index_without_files_has_no_parts(tmp_path: Path) -> None:
    build(tmp_path / "index", "one")
    with raises("index.no_files"):
        LiveIndex(tmp_path / "index").within(["a"])
