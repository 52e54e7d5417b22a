"""`evoseek feedback`: lists conversations with a verdict, and deletes them."""

import json

import pytest
from typer.testing import CliRunner

from evoseek.cli.main import app
from evoseek.errors import ConfigError, DataError
from evoseek.questions.asked import Asked, AskedLog
from evoseek.questions.feedback import Feedback, FeedbackFile

WRONG = Feedback("b", "2026-01-02T00:00:00Z", "when?\x1b[2J", None, "wrong", "1900", "page 3")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A project with two conversations."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evoseek.toml").write_text('[project]\nrun = "run"\n')
    file = FeedbackFile(tmp_path / "feedback.jsonl")
    file.add(Feedback("a", "2026-01-01T00:00:00Z", "who?", "Meri", "right"))
    file.add(WRONG)
    return tmp_path


def feedback(*words):
    result = CliRunner().invoke(app, ["feedback", *map(str, words)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def test_they_are_listed_with_their_numbers(folder):
    said = feedback()
    assert "   1  2026-01-01T00:00:00Z  right\n      who?\n      -> Meri\n" in said
    assert "-> (not found)\n      right answer: 1900\n      note: page 3\n" in said
    assert "\x1b" not in said
    assert f"2 conversations in {folder}/feedback.jsonl." in said
    assert [one["id"] for one in json.loads(feedback("--json"))["feedback"]] == ["a", "b"]


def test_one_is_deleted_by_its_number_or_all_are(folder):
    assert "Delete 1 of the 2 conversations" in feedback("--delete", 1, "--dry-run")
    assert "Deleted 1 of 2 conversations" in feedback("--delete", 1)
    assert FeedbackFile(folder / "feedback.jsonl").read() == [WRONG]
    with pytest.raises(DataError, match="names none of the 1 conversations"):
        feedback("--delete", 2)
    assert "Deleted 1 of 1 conversations" in feedback("--delete", "all")
    assert "0 conversations in" in feedback()


def test_those_of_a_run_outside_of_a_project(folder, tmp_path, monkeypatch):
    (folder / "evoseek.toml").unlink()
    (folder / "run").mkdir()
    FeedbackFile(folder / "run" / "feedback.jsonl").add(WRONG)
    assert "1 conversations in run/feedback.jsonl." in feedback("run")
    with pytest.raises(ConfigError, match="kept in a project or a run, but neither was found"):
        feedback()


def test_what_was_asked_is_listed_with_its_outcome_and_verdict(folder):
    log = AskedLog(folder / "asked.jsonl")
    log.add(Asked("sales", "b", "unsupported", 1.25, "when?\x1b[2J"))
    AskedLog(log.path, has_texts=False).add(Asked("", "c", "failed", 0.5, "who?"))
    said = feedback("--asked")
    assert "sales  unsupported, judged wrong, 1.2 s\n      when?" in said
    assert "-  failed, 0.5 s\n" in said
    assert "\x1b" not in said
    assert f"2 questions in {folder}/asked.jsonl: 1 unsupported, 1 failed; 1 judged wrong." in " ".join(said.split())
    assert json.loads(feedback("--asked", "--json"))["verdicts"] == {"wrong": 1}
