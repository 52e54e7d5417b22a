"""The main job in small: a few steps of GRPO make the tiny policy search on after its first hop."""

import json
from statistics import fmean

import pytest

from evoseek.questions.questions import save_questions
from evoseek.search.lexical import LexicalIndex
from evoseek.world.world import World

pytestmark = pytest.mark.slow


@pytest.fixture
def world_files(tmp_path):
    """Index and questions of a world; all need two hops, of which the policy can do one."""
    world = World.generate(5, 300, "train")
    LexicalIndex.build(tmp_path / "index", world.passages())
    save_questions(tmp_path / "questions.jsonl", world.questions(300, seed=5, hops=(2,)))
    return tmp_path


def test_reinforcement_learning_raises_exact_match_on_questions_not_seen_before(world_files, cli):
    """No question comes twice in these steps, so that the reward is that of new questions."""
    status, _, err = cli(
        "train",
        *("--run-dir", world_files / "run"),
        *("--index", world_files / "index"),
        *("--questions", world_files / "questions.jsonl"),
        *("--steps", 8),
        *("--set", "questions.per_step=6"),
        *("--set", "learner.learning_rate=1e-3"),
        *("--set", "rollout.max_turns=3"),  # what two hops need
    )
    assert status == 0, err
    rows = [json.loads(line) for line in (world_files / "run" / "metrics.jsonl").read_text().splitlines()]
    reward, searches = ([row[name] for row in rows] for name in ("reward", "tools/call_frequency"))
    assert len(reward) == 8
    assert fmean(reward[:2]) < 0.2
    assert fmean(reward[-3:]) > fmean(reward[:2]) + 0.2
    assert fmean(searches[-3:]) > searches[0] + 0.4
