"""Self-play by two processes: one game, whose episodes they share, resumable bit for bit."""

import json
import signal

import pytest

from evoseek.search.lexical import LexicalIndex
from evoseek.world.world import World

pytestmark = [pytest.mark.slow, pytest.mark.merge]

SMALL = {
    "proposer.max_tokens_per_turn": 64,
    "rollout.max_turns": 3,
    "selfplay.proposals_per_step": 5,
    "proposer.attempts": 2,
    "proposer.ratio": [1, 1],
    "run.checkpoint_every": 1,
}
PHASES = {
    "dr_zero.iterations": 1,
    "dr_zero.proposer_steps": 2,
    "dr_zero.writing_steps": 1,
    "dr_zero.solver_steps": 1,
    "dr_zero.passages_per_writing_step": 4,
    "dr_zero.questions_per_passage": 1,
    "questions.per_step": 3,
    "rollout.group_size": 3,
}
OF_SYSTEM = {
    "dr-zero": {**PHASES, "algorithm.entropy_coefficient": 0.05},
    "ssp": {"run.steps": 3, "verification.noise_passages": 2},
}
LOGS = ("metrics.jsonl", "questions.jsonl", "trajectories.jsonl")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A small world's index."""
    root = tmp_path_factory.mktemp("world")
    LexicalIndex.build(root / "index", World.generate(3, 200, "train").passages())
    return root


def words(system, world, run):
    given = {**SMALL, **OF_SYSTEM[system]}
    return [
        *("train", system, "--corpus", str(world / "index"), "--run-dir", str(run)),
        *(word for name, value in given.items() for word in ("--set", f"{name}={value}")),
    ]


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def played(run):
    """Who wrote what in the first step, and what it was worth: the same for any number of ranks."""
    return [
        (row["id"], [segment["ids"] for segment in row["segments"]], row["outcome"])
        for row in rows(run / "trajectories.jsonl")
        if row["step"] == 1
    ]


@pytest.mark.parametrize("system", ["dr-zero", "ssp"])
def test_two_ranks_play_one_game_and_resume_it_bit_for_bit(system, world, processes, tmp_path):
    """Each rank is killed when it has played its third step, and before that is in a checkpoint."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    command = processes.start(*words(system, world, whole), ranks=2)
    assert command.wait() == [0, 0], command.said()
    command = processes.start(*words(system, world, killed), ranks=2, watch=["rollout"], kill_at=3, moment="after")
    assert -signal.SIGKILL in command.wait(), command.said()
    assert len(rows(killed / "metrics.jsonl")) == 2
    command = processes.start(*words(system, world, killed), ranks=2)
    assert command.wait() == [0, 0], command.said()
    assert "Resuming" in command.said()
    for name in LOGS:
        assert (killed / name).read_bytes() == (whole / name).read_bytes(), name
    saved = sorted(path.relative_to(whole) for path in (whole / "checkpoints").glob("*/*/*.safetensors"))
    assert saved
    for path in saved:
        assert (killed / path).read_bytes() == (whole / path).read_bytes(), path
    if system == "ssp":
        alone = tmp_path / "alone"
        command = processes.start(*words(system, world, alone), "--steps", "1")
        assert command.wait() == [0], command.said()
        assert played(alone) == played(whole)
