"""The main job in small: a few steps of GRPO make the tiny policy search on after its first hop."""

import json

import pytest

from evoseek.corpus.questions import save_questions
from evoseek.search.lexical import LexicalIndex
from evoseek.world.world import World

pytestmark = pytest.mark.slow


@pytest.fixture
def world_files(tmp_path):
    """Index and questions of a training and of an evaluation world; their names share no word."""
    for split, hops, count in (("train", (2,), 300), ("evaluation", (2,), 100)):
        world = World.generate(5, 300, split)
        LexicalIndex.build(tmp_path / split / "index", world.passages())
        save_questions(tmp_path / split / "questions.jsonl", world.questions(count, seed=5, hops=hops))
    return tmp_path


def test_reinforcement_learning_raises_held_out_exact_match(world_files, cli):
    status, _, err = cli(
        "train",
        *("--run-dir", world_files / "run"),
        *("--index", world_files / "train" / "index"),
        *("--questions", world_files / "train" / "questions.jsonl"),
        *("--steps", 14),
        *("--set", "questions.per_step=10"),
        *("--set", f"evaluation.index={world_files / 'evaluation' / 'index'}"),
        *("--set", f"evaluation.path={world_files / 'evaluation' / 'questions.jsonl'}"),
        *("--set", "evaluation.every=14"),
    )
    assert status == 0, err
    rows = [json.loads(line) for line in (world_files / "run" / "metrics.jsonl").read_text().splitlines()]
    held_out = [row["eval/reward"] for row in rows if "eval/reward" in row]
    assert held_out[0] < 0.2
    assert held_out[-1] > held_out[0] + 0.2
    searches = [row["tools/call_frequency"] for row in rows if "tools/call_frequency" in row]
    assert searches[-1] > searches[0] + 0.2
