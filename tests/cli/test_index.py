"""The index command: what it refuses, and that refusing leaves nothing behind."""

from __future__ import annotations

import io
from importlib.util import find_spec
from pathlib import Path

import pytest
from rich.console import Console
from tests.search.test_choosing import corpus
from typer.testing import CliRunner

from evoseek.cli.main import app
from evoseek.config.project import open_project
from evoseek.documents.read_report import ReadReport
from evoseek.errors import ConfigError, DataError, SearchIndexError
from evoseek.search.indexing import IndexPlan, build_index, update_index
from evoseek.search.lexical import LexicalIndex

SHORT = "日本酒"


def index(corpus: Path, directory: Path, **options: str) -> tuple[str, str]:
    """What is said, and the text of the only passage."""
    console = Console(record=True, quiet=False, file=io.StringIO(), width=200)
    build_index(corpus, directory, IndexPlan(**options), console=console)
    (passage,) = LexicalIndex.open(directory).passages()
    return console.export_text(), passage.text


def test_a_guessed_encoding_is_told_with_the_remedy(tmp_path: Path) -> None:
    """So short a text in Shift-JIS is taken for something else."""
    corpus = tmp_path / "a.txt"
    corpus.write_bytes(SHORT.encode("shift_jis"))
    said, text = index(corpus, tmp_path / "index")
    assert "The encoding of 1 file that is not UTF-8 was guessed (1 " in said
    assert "a.txt: " in said
    assert "Convert these files to UTF-8, or name their encoding (--encoding)" in " ".join(said.split())
    assert text != SHORT
    said, text = index(corpus, tmp_path / "index", encoding="shift_jis")
    assert "was guessed" not in said
    assert text == SHORT


def test_what_is_utf_8_or_declared_is_not_guessed(tmp_path: Path) -> None:
    page = '<html><head><meta charset="{}"></head><body><p>' + SHORT + "</p></body></html>"
    for declared, encoding in (("Shift_JIS", "shift_jis"), ("utf-8", "utf-8")):
        (tmp_path / "a.html").write_bytes(page.format(declared).encode(encoding))
        said, text = index(tmp_path / "a.html", tmp_path / "index")
        assert ("was guessed" in said, text) == (False, SHORT)
    (tmp_path / "a.txt").write_text(SHORT, encoding="utf-8")
    assert index(tmp_path / "a.txt", tmp_path / "index", encoding="shift_jis")[1] == SHORT


def test_an_encoding_that_does_not_fit_skips_the_file_and_one_that_is_unknown_is_refused(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_bytes(b"\x81\xff\xff")
    (tmp_path / "docs" / "b.txt").write_text("Kalo is a city.")
    said, text = index(tmp_path / "docs", tmp_path / "index", encoding="shift_jis")
    assert "a.txt: encoding not recognised: neither UTF-8 nor shift_jis" in said
    assert text == "Kalo is a city."
    for name in ("klingon", "base64"):
        with pytest.raises(ConfigError, match=f"'{name}' is no known encoding"):
            index(tmp_path / "docs", tmp_path / "other", encoding=name)
    assert not (tmp_path / "other").exists()


def test_the_list_of_guesses_is_bounded() -> None:
    report = ReadReport()
    for number in range(1_200):
        report.guessed.add(Path(f"{number}.txt"), "cp949")
    told = report.guessed_table().split("\n")
    assert (len(report.guessed), told[0]) == (
        100,
        "The encoding of 1,200 files that are not UTF-8 was guessed (1,200 cp949):",
    )
    assert (len(told), told[10], told[11]) == (13, "9.txt: cp949", "... and 1,190 more: cp949")


def build(corpus: Path, directory: Path) -> None:
    build_index(corpus, directory, IndexPlan(), console=Console(quiet=True))


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


def test_the_longest_text_is_set_and_an_update_keeps_it(tmp_path: Path) -> None:
    corpus, told = tmp_path / "docs", Console(record=True, file=io.StringIO(), width=200)
    corpus.mkdir()
    (corpus / "a.txt").write_text("Kalo is a city.")
    (corpus / "b.txt").write_text("Kalo is a city by the river Supa.")
    found = CliRunner().invoke(app, ["index", str(corpus), str(tmp_path / "index"), "--max-text", "20"])
    assert "b.txt: text is too long: 33 characters, more than 20: raise --max-text" in found.stdout
    (corpus / "c.txt").write_text("The river Supa is long, too.")
    update_index(corpus, tmp_path / "index", device=None, console=told)
    assert "c.txt: text is too long: 28 characters, more than 20: raise --max-text" in told.export_text()


def test_an_update_takes_no_settings(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Kalo.")
    for option in ("--update", "--watch"):
        found = CliRunner().invoke(app, ["index", str(tmp_path), "somewhere", option, "--max-words", "50"])
        assert isinstance(found.exception, ConfigError)
        assert "the index was built with. Leave out --max-words" in str(found.exception)


def test_an_update_says_which_settings_of_the_project_the_index_was_built_without(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("Kalo is a city.")
    build(tmp_path / "docs", tmp_path / "index")
    file = tmp_path / "evoseek.toml"
    for own, kept in (
        ("max_words = 40", "keeps the max_words of the index in {}, which is 100; the project has 40. To"),
        ('stemming = "english"', "keeps the stemming of the index in {}, which is none; the project has english. To"),
        ('engine = "hybrid"', "keeps the engine of the index in {}, which is lexical; the project has hybrid. To"),
        ("max_words = 100", ""),
        ('stemming = "none"', ""),
        ("", ""),
    ):
        file.write_text(f'[project]\ndocuments = "docs"\n{own}\n[search]\nindex = "index"\n')
        found = CliRunner().invoke(app, ["index", "--project", str(tmp_path), "--update"])
        assert found.exit_code == 0
        assert ("An update keeps" in found.output) is bool(kept)
        assert kept.format(tmp_path / "index") in flat(found.output)


@pytest.mark.skipif(find_spec("wordllama") is None, reason="the package with the weights is not installed")
@pytest.mark.parametrize(("encoder", "is_kept"), [("static", False), ("minilm", True)])
def test_an_update_keeps_the_encoder_and_says_so_where_the_project_has_another(
    tmp_path: Path, encoder: str, is_kept: bool
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("Kalo is a city.")
    index(tmp_path / "docs", tmp_path / "index", engine="hybrid", encoder="static")
    text = f'[project]\ndocuments = "docs"\nengine = "hybrid"\nencoder = "{encoder}"\n[search]\nindex = "index"\n'
    (tmp_path / "evoseek.toml").write_text(text)
    found = CliRunner().invoke(app, ["index", "--project", str(tmp_path), "--update"])
    assert (found.exit_code, "keeps the encoder of" in flat(found.output)) == (0, is_kept)


def test_what_is_chosen_is_built_and_the_project_says_it_from_then_on(tmp_path: Path) -> None:
    corpus(tmp_path / "docs")
    file, called = tmp_path / "evoseek.toml", ["index", "--project", str(tmp_path)]
    file.write_text('[project]\ndocuments = "docs"\nencoder = "static"\n[search]\nindex = "index"\n')
    options = ["--choose", "--engine", "lexical", "--max-words", "60"]
    found = CliRunner().invoke(app, [*called, *options])
    assert "Searching for 40 headings of 4 documents" in found.output
    assert "says so from now on: engine = lexical, stemming = english, max_words = 60, search.top_k = " in flat(
        found.output
    )
    index, project = LexicalIndex.open(tmp_path / "index"), open_project(file)
    assert (index.manifest.analyser.stemming, index.manifest.max_words) == ("english", 60)
    assert (project.engine, project.stemming, project.max_words) == ("lexical", "english", 60)
    assert project.lookup("search.top_k") in range(6, 11)  # of about 40 words, in 350
    assert index.find("You painted doors", 1)[0].heading == "Painting doors"  # the real index has them
    for words in ([], ["--update"]):  # the encoder of another engine has no effect, and no notice
        again = CliRunner().invoke(app, [*called, *words])
        assert (again.exception, "encoder" in again.output) == (None, False)
    assert LexicalIndex.open(tmp_path / "index").manifest.analyser.stemming == "english"
    without = CliRunner().invoke(app, ["index", str(tmp_path / "docs"), str(tmp_path / "other"), *options])
    assert "--set search.top_k=" in without.output
    refused = CliRunner().invoke(app, [*called, "--update", "--choose"])
    assert "--choose has no effect on an update" in str(refused.exception)


def flat(text: str) -> str:
    return " ".join(text.split())


def test_a_home_folder_is_found_and_an_unknown_one_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "a.txt").write_text("One sentence.")
    assert CliRunner().invoke(app, ["index", "a.txt", "~/made"]).exit_code == 0
    assert len(LexicalIndex.open(tmp_path / "home" / "made")) == 1
    refused = CliRunner().invoke(app, ["index", "a.txt", "~nobody-at-all/made"])
    assert isinstance(refused.exception, ConfigError)
    assert not (tmp_path / "~nobody-at-all").exists()


ENGINE = """
from evoseek.search.settings import SearchSettings
from evoseek.types import Passage


class Own:
    is_local = True

    class Settings(SearchSettings):
        said: str = "nothing"

    @classmethod
    def build(cls, settings, context):
        made = cls()
        made.text = f"{settings.said} of {context.settings.run.system}, {settings.index}"
        return made

    async def search(self, queries, k):
        return [[Passage("p", "d", query, self.text)] for query in queries]


class OfQuestion:
    def for_question(self, question, trajectory_id):
        return self
"""


def test_the_engine_of_the_project_is_searched_or_another_one_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(*words: str) -> str:
        done = CliRunner().invoke(app, ["search", *words])
        return flat(done.stdout if done.exit_code == 0 else str(done.exception))

    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("Kalo is a city.")
    build(tmp_path / "docs", tmp_path / "index")
    (tmp_path / "own_engine.py").write_text(ENGINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "No index was given: set search.index" in found("kalo")
    own = "own_engine:Own"
    assert "nothing of search-r1, index" in found("index", "kalo", "--engine", own)
    file = tmp_path / "evoseek.toml"
    file.write_text(f'[run]\nsystem = "dspo"\n[search]\nname = "{own}"\nsaid = "much"\n')
    assert "1. kalo [p, score 0.000] much of dspo," in found("kalo")
    assert "Kalo is a city." in found("index", "kalo", "--engine", "lexical")
    assert "has no vectors, which the engine dense needs" in found("index", "kalo", "--set", "search.name=dense")
    assert "needs a question" in found("kalo", "--engine", "own_engine:OfQuestion")
    assert "Kalo is a city." in found("index", "kalo")  # which the project's engine would not search
    assert "much of dspo, index" in found("index", "kalo", "--engine", own)
    file.write_text('[search]\nname = "remote"\nurl = "http://127.0.0.1:9/retrieve"\n')
    assert "Kalo is a city." in found("index", "kalo")
    named = found("index", "kalo", "--engine", "remote")
    assert "remote searches no index, but the index index was given. Leave out the index, or name an engine" in named
    file.write_text('[search]\nindex = "index"\nname = "hybrid"\n')
    assert "has no vectors" in found("kalo")
    assert "Kalo is a city." in found("kalo", "--engine", "lexical")  # in the project's index
