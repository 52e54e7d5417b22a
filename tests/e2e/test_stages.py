"""A run with stages: what it does in each, and that it resumes to the same bits everywhere."""

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from evoseek.run import Run
from evoseek.storage.checkpoints import load_checkpoint

STAGES = """
[[stages]]
name = "two hops"
until = "reward/hops_2 >= 0"
over = 2
questions.where = {hops = 2}

[[stages]]
name = "both"
steps = 2
loss = "sequence"
learner.learning_rate = 1e-3
questions.balance_by = "hops"
questions.shares = {1 = 1, 2 = 2}

[[stages]]
name = "rest"
rollout.temperature = 0.7
questions.per_step = 2
"""


@pytest.fixture
def train(setting, tmp_path):
    """`train(directory, steps)`: the output of a run with these stages, up to so many steps."""
    lines = [json.loads(line) for line in setting.questions.read_text().splitlines()]
    rows = [{**row, "hops": 1 + number % 2} for number, row in enumerate(lines)]
    (tmp_path / "hops.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "staged.toml").write_text(STAGES)
    given = {
        "questions.path": tmp_path / "hops.jsonl",
        "evaluation.path": "",
        "evaluation.every": 10,
        "sampler.probe_every": 1,
    }
    files = [setting.config, tmp_path / "staged.toml"]

    def train(directory, steps):
        console = Console(file=StringIO())
        options = {"config": files, "settings": given | {"run.steps": steps}, "console": console}
        assert Run("search-r1", tmp_path / directory, **options).train() == steps
        return " ".join(console.file.getvalue().split())

    return train


@pytest.mark.slow
def test_it_goes_through_its_stages_and_resumes_inside_and_at_their_borders_to_the_same_bits(train, tmp_path):
    out = train("whole", 5)
    assert "Stage 1 of 3 (two hops) begins with step 1: the run began." in out
    assert "Stage 2 of 3 (both) begins with step 3: the mean of reward/hops_2 over 2 steps was" in out
    assert "Stage 3 of 3 (rest) begins with step 5: both has made its 2 steps." in out
    assert "stage both" in out
    assert "Resuming" not in out
    rows = [json.loads(line) for line in (tmp_path / "whole/metrics.jsonl").read_text().splitlines()]
    assert [row["stage"] for row in rows] == [1, 1, 2, 2, 3]
    assert ["reward/hops_1" in row for row in rows[:4]] == [False, False, True, True]
    assert [row["learning_rate"] for row in rows if "learning_rate" in row][2:4] == [1e-3, 1e-3]
    assert [row["rollout/num"] for row in rows] == [12, 12, 12, 12, 8]
    train("parts", 1)
    assert "Stage 1 of 3 (two hops) continues after step 1; it began with step 1" in train("parts", 4)
    assert "Resuming" not in train("parts", 5)  # a stage begins there
    assert (tmp_path / "whole/metrics.jsonl").read_bytes() == (tmp_path / "parts/metrics.jsonl").read_bytes()
    last = Path("checkpoints/step-000005")
    whole, parts = (load_checkpoint(tmp_path / name / last) for name in ("whole", "parts"))
    assert whole.position["stages"] == parts.position["stages"]
    assert whole.position["system"] == parts.position["system"] != {}
    for file in (tmp_path / "whole" / last).rglob("*.safetensors"):
        same = tmp_path / "parts" / file.relative_to(tmp_path / "whole")
        assert file.read_bytes() == same.read_bytes(), file


def test_wrong_stages_are_refused_before_anything_is_written(setting, tmp_path, cli):
    def refused(stages):
        status, _, error = cli(*setting.train(tmp_path / "run", "--set", f"stages={stages}"))
        assert status == 2
        assert not (tmp_path / "run").exists()
        return " ".join(error.split())

    unknown = refused('[{name="a", questions={wher={hops=2}}}]')
    assert "(from stages: a, the options and --set) are not valid: unknown setting questions.wher (did you" in unknown
    assert "In the stage b: questions.where" in refused('[{name="a", steps=1}, {name="b", questions={where={hops=2}}}]')
