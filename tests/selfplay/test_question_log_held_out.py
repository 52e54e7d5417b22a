import json

import pytest

from evoseek.errors import ConfigError
from evoseek.selfplay.question_log import held_out_questions
from evoseek.storage.runs import RunDirectory


def written(path, questions, rollouts):
    """A run that wrote questions of these ids, or of (id, who), and rollouts of (role, who)."""
    path.mkdir()
    pairs = [(one, one) if isinstance(one, str) else one for one in questions]
    rows = [{"id": id, "question": f"who is {who}?", "golden_answers": ["meri"], "metadata": {}} for id, who in pairs]
    (path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = [{"role": role, "question": {"id": who, "text": f"who is {who}?"}} for role, who in rollouts]
    (path / "trajectories.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return RunDirectory(path)


def test_they_are_those_that_no_rollout_of_the_solver_was_about(tmp_path):
    run = written(tmp_path / "run", ["a", "b", "c"], [("solver", "b"), ("proposer", "a"), ("solver", "b")])
    questions, words = held_out_questions(run)
    assert [question.id for question in questions] == ["a", "c"]
    assert "2 of 3 questions" in words
    assert "Their answers are the proposer's" in words


def test_a_text_that_was_written_twice_and_trained_on_once_is_not_held_out(tmp_path):
    questions = ["a", ("second-a", "a"), ("third-a", "  the A"), "b", ("second-b", "b")]
    held_out, words = held_out_questions(written(tmp_path / "run", questions, [("solver", "a")]))
    assert [question.id for question in held_out] == ["b"]  # once, since the second one is the same question
    assert "1 of 5 questions" in words


def test_if_all_were_trained_on_that_is_said_with_the_command_that_writes_new_ones(tmp_path):
    run = written(tmp_path / "run", ["a"], [("solver", "a")])
    run.config.write_text(json.dumps({"search": {"index": "my-index"}}))
    questions, words = held_out_questions(run)
    assert [question.id for question in questions] == ["a"]
    assert "and trained on, all of them" in words
    assert "--count 50` writes new ones. Their" in words
    assert f"evoseek propose my-index held-out.jsonl --run-dir {run.path}" in words


def test_if_none_was_written_there_is_no_score(tmp_path):
    run = written(tmp_path / "run", [], [("proposer", "a")])
    with pytest.raises(ConfigError, match="self-play has written none") as error:
        held_out_questions(run)
    assert "--questions" in str(error.value)


def test_what_a_cold_start_held_out_comes_first(tmp_path):
    run = written(tmp_path / "run", ["a", "b"], [])
    run.held_out.parent.mkdir()
    rows = [
        {"id": "cold-0", "question": "When was Ada Birk born?", "golden_answers": ["16 June 1911"]},
        {"id": "cold-1", "question": "When did Ada Birk die?", "golden_answers": [], "answerable": False},
    ]
    run.held_out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    questions, words = held_out_questions(run)
    assert [question.id for question in questions] == ["cold-0", "cold-1"]
    assert "the 2 questions that the cold start" in words
    assert "`evoseek review`" in words
