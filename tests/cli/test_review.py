"""`evoseek review`: in the terminal, on the page, and what it reads and writes where."""

import json
import sys

import click
import pytest
from typer.testing import CliRunner

from evoseek.cli import review as module
from evoseek.cli.main import app
from evoseek.errors import ConfigError
from evoseek.questions.questions import load_questions
from evoseek.search.lexical import LexicalIndex
from evoseek.types import Passage


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with an index, and a file of five questions."""
    monkeypatch.chdir(tmp_path)
    LexicalIndex.build(tmp_path / "index", [Passage("k#0", "k", "Kalo", "Kalo's mayor is Meri.")])
    write(tmp_path / "questions.jsonl", 5)
    return tmp_path


def write(path, count):
    path.parent.mkdir(exist_ok=True, parents=True)
    rows = [
        {"id": f"q{n}", "question": f"who is {n}?", "golden_answers": ["Meri"], "metadata": {"evidence": ["k#0"]}}
        for n in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def review(*words, keys=""):
    result = CliRunner().invoke(app, ["review", *map(str, words)], input=keys)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def verdicts(path):
    return [json.loads(line)["verdict"] for line in path.read_text().splitlines()]


def test_keys_judge_and_what_was_left_is_resumed(folder):
    said = review("questions.jsonl", "--terminal", "--index", "index", "--count", 4, keys="rxw").output
    assert "Kalo\nKalo's mayor is Meri." in said
    assert "2 of 4 judged. True: 0.500 [0.095, 0.905] (1 right, 1 wrong; 0 unclear, not counted)" in said
    assert "The same command resumes." in said
    assert verdicts(folder / "questions.review.jsonl") == ["right", "wrong"]
    said = review("questions.jsonl", "--terminal", "--index", "index", "--count", 4, keys="RU").output
    assert "3 of 4" in said.split("\n")[0]
    assert "4 of 4 judged. True: 0.667" in said
    assert "There are 5 questions: to judge more, raise --count." in said
    assert verdicts(folder / "questions.review.jsonl") == ["right", "wrong", "right", "unclear"]
    assert len(load_questions(folder / "reviewed.jsonl")) == 2
    assert "4 of 4 judged" in review("questions.jsonl", "--terminal", "--count", 4).output


def test_back_judges_the_one_before_again(folder):
    review("questions.jsonl", "--terminal", "--index", "index", "--count", 2, keys="rbwq")
    assert verdicts(folder / "questions.review.jsonl") == ["right", "wrong"]
    assert (folder / "reviewed.jsonl").read_text() == ""


@pytest.mark.parametrize(("key", "status"), [("\x1b[D", 0), (KeyboardInterrupt, 130), (EOFError, 0)])
def test_keys_of_a_terminal(folder, monkeypatch, key, status):
    keys = iter(["r", key, "q"])

    def getchar():
        key = next(keys)
        if isinstance(key, str):
            return key
        raise key

    monkeypatch.setattr(click, "getchar", getchar)
    monkeypatch.setattr(module.sys, "stdin", type("Terminal", (), {"isatty": lambda self: True})())
    finished = []
    monkeypatch.setattr(module, "finish", finished.append)
    module.review(folder / "questions.jsonl", None, 2, 0, None, True, None)
    assert finished == [status == 0]
    assert verdicts(folder / "questions.review.jsonl") == ["right"]


def test_a_run_is_reviewed_by_what_its_cold_start_wrote_or_by_what_self_play_held_out(folder):
    run = folder / "run"
    write(run / "questions.jsonl", 3)
    (run / "config.json").write_text(json.dumps({"search": {"index": "index"}}))
    solved = {"role": "solver", "question": {"id": "q0", "text": "who is 0?"}}
    (run / "trajectories.jsonl").write_text(json.dumps(solved) + "\n")
    assert "2 of 2 judged" in review("run", "--terminal", keys="rr").output
    assert {row.id for row in load_questions(run / "reviewed.jsonl")} == {"q1", "q2"}
    write(run / "cold_start" / "held_out.jsonl", 4)
    assert "4 of 4 judged" in review("run", "--terminal", keys="rr").output
    assert verdicts(run / "review.jsonl") == ["right"] * 4


def test_in_a_project_the_test_set_is_the_projects(folder):
    (folder / "evoseek.toml").write_text('[project]\nrun = "runs/one"\n[search]\nindex = "index"\n')
    write(folder / "runs" / "one" / "cold_start" / "held_out.jsonl", 2)
    assert "2 of 2 judged" in review("--terminal", keys="rw").output
    assert len(load_questions(folder / "reviewed.jsonl")) == 1
    assert (folder / "runs" / "one" / "review.jsonl").is_file()
    review("questions.jsonl", "--terminal", "--out", "mine.jsonl", "--count", 1, keys="r")
    assert verdicts(folder / "mine.jsonl") == ["right"]


def test_without_a_browser_it_runs_in_the_terminal(folder, monkeypatch):
    monkeypatch.setattr(module, "_has_browser", lambda: False)
    assert "1 of 1 judged" in review("questions.jsonl", "--count", 1, keys="r").output


def test_without_the_extra_for_the_page_it_runs_in_the_terminal(folder, monkeypatch):
    monkeypatch.setattr(module, "_has_browser", lambda: True)
    monkeypatch.setitem(sys.modules, "evoseek.serve.review", None)
    said = review("questions.jsonl", "--count", 1, keys="r").output
    assert "pip install 'evoseek[serve]'" in said
    assert "1 of 1 judged" in said


def test_the_page_opens_in_the_browser(folder, monkeypatch):
    monkeypatch.setattr(module, "_has_browser", lambda: True)
    opened = []

    def use(url):
        opened.append(url)
        monkeypatch.setattr("evoseek.serve.connection.StoppableServer.run", lambda self, sockets: None)

    monkeypatch.setattr(module.webbrowser, "open", use)
    said = review("questions.jsonl", "--count", 2).output
    assert opened[0].startswith("http://127.0.0.1:")
    assert opened[0] in said.replace("\n", "")
    assert "0 of 2 judged." in said


def test_a_terminal_has_no_port_and_a_folder_without_questions_is_refused(folder):
    with pytest.raises(ConfigError, match="Leave one out"):
        review("questions.jsonl", "--terminal", "--port", 0)
    with pytest.raises(ConfigError, match=r"There is no runs/one with questions to judge\."):
        review("runs/one", "--terminal")
    (folder / "empty").mkdir()
    with pytest.raises(ConfigError, match="self-play has written none"):
        review("empty", "--terminal")


def test_a_dry_run_writes_nothing(folder):
    said = review("questions.jsonl", "--dry-run").output
    assert "Judge 5 of 5 questions of questions.jsonl" in said
    assert not (folder / "questions.review.jsonl").exists()
