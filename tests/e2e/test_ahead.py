"""Runs whose rollouts go on while a step trains: how old the weights are, and what is left of them when killed."""

import json
import signal
from collections import Counter

import pytest

from evoseek.rollout.record import read_trajectories

pytestmark = pytest.mark.slow

AHEAD = ("--set", "rollout.max_staleness=1", "--set", "evaluation.every=10")


def check(run_dir, n=1):
    """Every step was trained once, on all of its rollouts and on its own questions, of weights that are recent enough;
    gives the rows of the metrics."""
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 1, 2, 3, 4]
    records = list(read_trajectories(run_dir / "trajectories.jsonl"))
    assert Counter(record.step for record in records) == dict.fromkeys(range(1, 5), 12)
    assert all(record.trajectory.id.startswith(f"step-{record.step:06d}/") for record in records)
    for epoch in ((1, 2), (3, 4)):
        asked = Counter(record.trajectory.question.id for record in records if record.step in epoch)
        assert asked == {f"q{number}": 4 for number in range(6)}
    for record in records:
        versions = [segment.policy_version for segment in record.trajectory.segments]
        for version in (record.trajectory.policy_version, *(v for v in versions if v is not None)):
            assert record.step - 1 - n <= version <= record.step - 1
    return rows


@pytest.mark.parametrize("n", [1, 2])
def test_no_token_is_older_than_allowed(setting, processes, tmp_path, n):
    words = setting.train(tmp_path / "run", *AHEAD, "--set", f"rollout.max_staleness={n}")
    command = processes.start(*words)
    assert command.wait() == [0], command.said()
    rows = check(tmp_path / "run", n)
    assert rows[1]["rollout/staleness/max"] == 0
    assert all(row["sampling/importance_sampling_ratio/deviation"] >= 0 for row in rows[1:])


@pytest.mark.parametrize(("kill_at", "moment"), [(2, "before"), (3, "before"), (3, "after")])
def test_a_run_that_is_killed_rolls_out_again_what_was_in_flight(setting, processes, tmp_path, kill_at, moment):
    """Killed in the thread of an update, with rollouts of the next step in flight or finished; the step after the last
    checkpoint is then rolled out with that checkpoint's weights."""
    words = setting.train(tmp_path / "run", *AHEAD)
    killed = processes.start(*words, watch=("update",), kill_at=kill_at, moment=moment)
    assert killed.wait() == [-signal.SIGKILL], killed.said()
    resumed = processes.start(*words)
    assert resumed.wait() == [0], resumed.said()
    assert f"after step {kill_at - 1}" in resumed.said()
    rows = check(tmp_path / "run")
    assert rows[kill_at]["rollout/staleness/max"] == 0


def test_ctrl_c_ends_after_the_step_and_leaves_nothing_in_flight(setting, processes, tmp_path):
    words = setting.train(tmp_path / "run", *AHEAD)
    command = processes.start(*words)
    assert command.interrupt_after("step 1/4", signal.SIGINT) == [130], command.said()
    assert "never retrieved" not in command.said()
    resumed = processes.start(*words)
    assert resumed.wait() == [0], resumed.said()
    check(tmp_path / "run")
