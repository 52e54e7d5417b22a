"""A run whose reward collapses: its best weights are taken back, and it resumes to the same bits."""

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from safetensors.torch import load_file

from evoseek.checkpoints import load_checkpoint
from evoseek.run import Run
from evoseek.types import Scored


async def collapsing(trajectory):
    """Every second rollout is right in the first five steps, and none in later ones."""
    step, number = int(trajectory.id.split("/")[0].removeprefix("step-")), int(trajectory.id.rsplit("/")[-1])
    return Scored(float(step <= 5 and number % 2))


@pytest.fixture
def train(setting, tmp_path):
    """`train(directory, steps)`: the output of such a run, up to so many steps."""

    def train(directory, steps):
        console = Console(file=StringIO())
        given = {
            "evaluation.path": "",
            "evaluation.every": 10,
            "run.rollbacks": 2,
            "run.checkpoint_every": 2,
            "run.steps": steps,
        }
        options = {"config": setting.config, "settings": given, "reward": collapsing, "console": console}
        assert Run("search-r1", tmp_path / directory, **options).train() == steps
        return " ".join(console.file.getvalue().split())

    return train


@pytest.mark.slow
def test_the_weights_before_the_best_steps_are_taken_back_and_it_resumes_to_the_same_bits(train, setting, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    out = train("whole", 12)
    assert (
        "over steps 6 to 10 is 0.000, less than half of the 0.500 over steps 1 to 5, and in nearly no group is" in out
    )
    assert "The weights are again those of step 0, and the learning rate is halved (run.rollbacks: 1 left)." in out
    assert "Resuming" not in out
    rows = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, 13))
    assert load_checkpoint(whole / "checkpoints/step-000012").position["rollbacks"] == [{"step": 10, "to": 0}]

    train("parts", 9)
    learnt = load_file(parts / "checkpoints/step-000009/policy/model.safetensors")
    start = load_file(setting.model / "model.safetensors")
    assert any((learnt[name] != start[name]).any() for name in start)
    assert sorted(path.name for path in (parts / "checkpoints").iterdir()) == [
        *("step-000000", "step-000004", "step-000006", "step-000008", "step-000009")
    ]
    train("parts", 10)
    back = load_file(parts / "checkpoints/step-000010/policy/model.safetensors")
    assert all((back[name] == start[name]).all() for name in start)
    train("parts", 11)
    train("parts", 12)
    assert (whole / "metrics.jsonl").read_bytes() == (parts / "metrics.jsonl").read_bytes()
    for file in (whole / "checkpoints/step-000012").rglob("*.safetensors"):
        assert file.read_bytes() == (parts / file.relative_to(whole)).read_bytes(), file


def test_a_stage_does_not_end_by_what_was_taken_back(setting, tmp_path):
    """At step 11 five of the last six groups without a signal are of weights that are gone: the stage goes on."""
    console, stages = (
        Console(file=StringIO()),
        [{"name": "a", "until": "frac_reward_zero_std > 0.9", "over": 6}, {"name": "b"}],
    )
    given = {
        "evaluation.path": "",
        "evaluation.every": 10,
        "run.rollbacks": 1,
        "run.checkpoint_every": 5,
        "run.steps": 12,
        "stages": stages,
    }
    options = {"config": setting.config, "settings": given, "reward": collapsing, "console": console}
    Run("search-r1", tmp_path / "run", **options).train()
    out = " ".join(console.file.getvalue().split())
    assert "The weights are again those of step 0" in out
    assert "Stage 2" not in out


def test_at_half_of_the_rate(setting, tmp_path):
    """Five right steps, five wrong ones, a right one again: what is learnt after the rollback has half of the rate."""

    async def again(trajectory):
        step, number = int(trajectory.id.split("/")[0].removeprefix("step-")), int(trajectory.id.rsplit("/")[-1])
        return Scored(float((step <= 5 or step > 10) and number % 2))

    given = {"evaluation.path": "", "evaluation.every": 10, "run.rollbacks": 1, "run.steps": 11}
    run = Run("search-r1", tmp_path, config=setting.config, settings=given, reward=again, console=Console(quiet=True))
    run.train()
    rows = [json.loads(line) for line in Path(tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row.get("learning_rate") for row in rows] == [1e-2] * 5 + [None] * 5 + [5e-3]


def test_trap_the_second_rollback_halves_the_rate_once_more(setting, tmp_path):
    """Five right steps and five wrong ones, twice, and a right one again."""

    async def twice(trajectory):
        step, number = int(trajectory.id.split("/")[0].removeprefix("step-")), int(trajectory.id.rsplit("/")[-1])
        return Scored(float((step - 1) % 10 < 5 and number % 2))

    given = {"evaluation.path": "", "evaluation.every": 10, "run.rollbacks": 2, "run.steps": 21}
    run = Run("search-r1", tmp_path, config=setting.config, settings=given, reward=twice, console=Console(quiet=True))
    run.train()
    rows = [json.loads(line) for line in Path(tmp_path / "metrics.jsonl").read_text().splitlines()]
    rates = [row["learning_rate"] for row in rows if row.get("learning_rate")]
    assert rates == [1e-2] * 5 + [5e-3] * 5 + [2.5e-3]
