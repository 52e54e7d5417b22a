"""`evoseek train` in several processes: what goes wrong is told once, in one paragraph."""

import json
from functools import partial
from pathlib import Path

import pytest
from tests.doubles.learners import learner_of

from evoseek.learner.checkpoint import CheckpointPart, save_checkpoint
from evoseek.learner.logprobs import LogprobModel
from evoseek.loss.clipped import ClippedLoss
from evoseek.models.load import load_policy, save_policy
from evoseek.search.lexical import LexicalIndex
from evoseek.storage.runs import RunDirectory
from evoseek.types import Passage


@pytest.fixture
def said_by_two(run_ranks):
    """`said_by_two(run, *words)`: what evoseek says when two processes train, and all of their output."""

    def train(run: Path, *words: object) -> tuple[list[str], str]:
        answer = run_ranks(2, "evoseek", words=["train", "--run-dir", str(run), *map(str, words)], fails=True)
        assert answer["statuses"] == [2, 2], answer
        return said(answer["output"])

    return train


def said(output: str) -> tuple[list[str], str]:
    return [line for line in output.splitlines() if line.startswith("evoseek: ")], output


@pytest.fixture
def sources(tmp_path: Path) -> list[object]:
    """An index and questions for the tiny policy, as options."""
    LexicalIndex.build(tmp_path / "index", [Passage("p", "Kalo", "Kalo", "Kalo is a river")])
    questions = tmp_path / "questions.jsonl"
    questions.write_text(json.dumps({"id": "q", "question": "What is Kalo?", "golden_answers": ["a river"]}) + "\n")
    return ["--model", "tiny", "--index", tmp_path / "index", "--questions", questions]


def check(lines: list[str], output: str, expected: str) -> None:
    assert len(lines) == 1, output
    assert expected in lines[0]
    assert "bug" not in lines[0]
    assert "gloo" not in output


def test_a_run_that_another_process_holds(said_by_two, tmp_path: Path, sources: list[object]) -> None:
    with RunDirectory(tmp_path / "run").locked():
        check(*said_by_two(tmp_path / "run", *sources, "--set", "questions.per_step=1"), "is in use by another process")


def test_a_run_of_another_config(said_by_two, tmp_path: Path, sources: list[object]) -> None:
    run = RunDirectory(tmp_path / "run")
    with run.locked():
        run.claim({"run": {"seed": 7}})
    policy = load_policy("tiny")
    learner = learner_of(LogprobModel(policy.model), loss=ClippedLoss(), learning_rate=0.1)
    save_checkpoint(
        run.path, step=1, parts={"policy": CheckpointPart(partial(save_policy, policy), learner)}, position={}
    )
    check(*said_by_two(run.path, *sources, "--set", "questions.per_step=1"), "begun with another config")


def test_a_mistake_that_all_find(said_by_two, tmp_path: Path) -> None:
    check(*said_by_two(tmp_path / "run", "--set", "learner.banana=1"), "banana")


def test_logs_that_cannot_be_written_in_the_midst_of_training(run_ranks, tmp_path: Path, sources: list[object]) -> None:
    """Under torchrun, which ends (SIGTERM) the one that is slower to fail."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "lock").touch()
    (run / "trajectories.jsonl").symlink_to("/dev/full")
    words = ["train", "--run-dir", run, *sources, "--set", "questions.per_step=1", "--steps", "1"]
    answer = run_ranks(2, "evoseek", words=[str(word) for word in words], as_torchrun=True, fails=True)
    lines, output = said(answer["output"])
    assert len(lines) == 1, output
    assert "trajectories.jsonl cannot be written" in lines[0]
    assert answer["statuses"][0] == 2  # of the first to end, which torchrun reports
