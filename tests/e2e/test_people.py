"""What people say of questions and answers, in a project: the test set is not trained on and is what is scored; the
questions of feedback are trained on, and examined."""

import json
import re
import shutil

import pytest

from evoseek.questions.feedback import Feedback, FeedbackFile
from evoseek.questions.questions import load_questions, save_questions
from evoseek.types import Question


def verdict(id, question, answer, verdict="right", **more):
    return Feedback(id, "2026-01-01T00:00:00Z", question, answer, verdict, **more)


VERDICTS = [
    verdict("a", "gold river is", "seven"),
    verdict("b", "Stone  is", "north"),  # in the test set
    verdict("c", "north is", "gold"),  # a training question
    verdict("d", "seven gold is", "north", "wrong"),
    verdict("e", "what is it", "north", earlier=2),
    verdict("f", "stone gold is", None),
]


@pytest.fixture
def project(setting, tmp_path, monkeypatch):
    """A project that trains on the six questions of the setting, two of which were judged right, and has feedback."""
    text = re.sub(r"\[evaluation\].*?(?=\n\[)", "", setting.config.read_text(), flags=re.DOTALL)
    (tmp_path / "evoseek.toml").write_text(f'[project]\nrun = "run"\n{text}system = "search-r1"\n')
    questions = load_questions(setting.questions)
    save_questions(
        tmp_path / "reviewed.jsonl", [Question(f"r-{one.id}", f"The {one.text}!", ("x",)) for one in questions[3:5]]
    )
    for one in VERDICTS:
        FeedbackFile(tmp_path / "feedback.jsonl").add(one)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def asked(run):
    rows = (json.loads(line) for line in (run / "trajectories.jsonl").read_text().splitlines())
    return {row["question"]["text"] for row in rows}


TRAINED = {"north is", "south is", "river is", "seven is", "gold river is", "stone gold is"}


def test_training_leaves_the_test_set_out_and_adds_feedback_that_a_resumed_run_keeps(project, cli):
    words = ("train", "--set", "questions.per_step=6", "--set", "rollout.group_size=2")
    status, out, err = cli(*words, "--steps", 1)
    assert status == 0, err
    said = " ".join(out.split())
    assert "Training questions: 6; 2 of " in said
    assert (
        f"are in the test set {project}/reviewed.jsonl; 2 are added from the feedback in {project}/feedback.jsonl; "
        "2 others are not, since they are there already, held out, or not scored by f1." in said
    )
    assert asked(project / "run") == TRAINED
    FeedbackFile(project / "feedback.jsonl").add(verdict("g", "river gold is", "north"))
    FeedbackFile(project / "feedback.jsonl").delete(["a"])
    status, out, err = cli("train", "--steps", 2)
    assert status == 0, err
    assert asked(project / "run") == TRAINED


def test_both_can_be_switched_off(project, cli, setting):
    words = ("--set", "questions.feedback=", "--set", "evaluation.reviewed=", "--set", "questions.per_step=6")
    status, out, err = cli("train", "--steps", 1, *words)
    assert status == 0, err
    assert "Training questions" not in out
    assert asked(project / "run") == {one.text for one in load_questions(setting.questions)}


def test_the_plan_tells_of_both_and_writes_nothing(project, cli):
    status, out, err = cli("train", "--dry-run")
    assert status == 0, err
    assert "Questions: 6 of" in out
    assert "2 are added from the feedback" in " ".join(out.split())
    assert not (project / "run").exists()


def test_feedback_on_held_out_questions_is_not_trained_on(project, cli):
    save_questions(project / "mine.jsonl", [Question("mine", "Gold river is?", ("x",))])
    status, out, err = cli("train", "--dry-run", "--set", "evaluation.path=mine.jsonl")
    assert status == 0, err
    assert "1 are added from the feedback" in " ".join(out.split())


def test_a_test_set_that_leaves_nothing_is_refused(project, cli, setting):
    shutil.copy(setting.questions, project / "reviewed.jsonl")
    status, _, err = cli("train")
    assert status == 2
    assert "All 6 questions of" in err


def test_the_test_set_is_scored_where_no_questions_are_named(project, cli):
    status, out, err = cli("eval", "--json")
    assert status == 0, err
    assert f"Scored on the test set, 2 questions that were judged right: {project}/reviewed.jsonl." in err
    found = json.loads(out)
    assert (found["n"], found["kind"]) == (2, "written questions that were judged right")
    assert found["temperature"] == 0  # as `ask`
    status, out, err = cli("eval", "--json", "--samples", 2)
    assert json.loads(out)["temperature"] == 1
    status, out, err = cli("eval", "--json", "--set", "evaluation.temperature=0.5")
    assert json.loads(out)["temperature"] == 0.5
    status, _, err = cli("eval", "--json", "--set", "evaluation.path=questions.jsonl")
    assert "Scored on the test set" not in err


def test_what_a_run_was_trained_on_before_it_was_judged_is_told(project, cli):
    (project / "reviewed.jsonl").rename(project / "later.jsonl")
    assert cli("train", "--steps", 1, "--set", "questions.per_step=8")[0] == 0
    (project / "later.jsonl").rename(project / "reviewed.jsonl")
    _, _, err = cli("eval", "--json")
    assert "2 of them this run was trained on, before they were judged." in " ".join(err.split())


def test_conversations_with_a_verdict_are_examined(project, cli):
    status, out, err = cli("eval", "--on", "feedback", "--json", "--out", "out")
    assert status == 0, err
    assert "4 questions of" in err
    assert "have a known right answer, 1 only a wrong one; 1 verdicts are on questions within a conversation" in err
    found = json.loads(out)
    assert (found["n"], found["judged_wrong"]["same_again"]["n"]) == (4, 1)
    again = found["judged_wrong"]
    assert again["same_again"]["mean"] + again["another"]["mean"] == 1.0
    low, high = again["same_again"]["interval_95"]
    assert again["another"]["interval_95"] == [1 - high, 1 - low]
    assert (project / "out" / "judged_wrong" / "results.json").is_file()
    assert set(found["answers"]) == {"answerable", "unanswerable"}
    (project / "out").rename(project / "old")
    (project / "out").mkdir()
    (project / "old" / "judged_wrong").rename(project / "out" / "judged_wrong")  # as while all are judged wrong
    assert cli("eval", "--on", "feedback", "--json", "--out", "out")[0] == 0


def test_there_is_nothing_to_examine_without_feedback(project, cli):
    (project / "feedback.jsonl").unlink()
    status, _, err = cli("eval", "--on", "feedback")
    assert (status, "holds no conversation with a verdict" in err) == (2, True)
