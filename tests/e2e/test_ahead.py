"""Runs whose rollouts go on while a step trains: how old the weights are, and what is left of them when killed."""

import json
import math
import signal
from collections import Counter, defaultdict
from statistics import fmean

import pytest
import torch
from transformers import AutoModelForCausalLM

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


@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.merge)])
def test_no_token_is_older_than_allowed(setting, processes, tmp_path, n):
    words = setting.train(tmp_path / "run", *AHEAD, "--set", f"rollout.max_staleness={n}")
    command = processes.start(*words)
    assert command.wait() == [0], command.said()
    rows = check(tmp_path / "run", n)
    assert rows[1]["rollout/staleness/max"] == 0
    assert all(row["sampling/importance_sampling_ratio/deviation"] >= 0 for row in rows[1:])


@pytest.mark.parametrize(
    ("kill_at", "moment"),
    [
        (3, "after"),
        pytest.param(2, "before", marks=pytest.mark.merge),
        pytest.param(3, "before", marks=pytest.mark.merge),
    ],
)
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


def logprobs_of(model, ids):
    """[T], the first one 0: of each token after those before it."""
    with torch.no_grad():
        rows = model(torch.tensor([ids])).logits[0, :-1].log_softmax(dim=-1)
    return [0.0, *rows.gather(1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()]


def test_every_token_is_of_weights_that_are_recent_enough_and_is_corrected_to_those_that_are_trained(
    setting, processes, tmp_path
):
    """With all checkpoints kept, each token's recorded logprob is found under one of the versions that its step allows,
    its turn's first under the version that the turn names; and the metric of the importance weights is what the weights
    before the step make of them: mean |min(2, exp(logprob - recorded)) - 1| over all tokens, where a rollout that is
    worth its group's mean counts 0."""
    run, n = tmp_path / "run", 2
    words = setting.train(run, *AHEAD, "--set", f"rollout.max_staleness={n}", "--set", "run.keep_checkpoints=9")
    command = processes.start(*words)
    assert command.wait() == [0], command.said()
    folders = [setting.model, *(run / f"checkpoints/step-{step:06d}/policy" for step in range(1, 4))]
    models = [AutoModelForCausalLM.from_pretrained(folder).eval() for folder in folders]
    steps, seen = defaultdict(list), set()
    for record in read_trajectories(run / "trajectories.jsonl"):
        steps[record.step].append(record)
        rollout, allowed = record.trajectory, range(max(0, record.step - 1 - n), record.step)
        found, place = {version: logprobs_of(models[version], rollout.token_ids) for version in allowed}, 0
        for segment in rollout.segments:
            named = rollout.policy_version if segment.policy_version is None else segment.policy_version
            for number, recorded in enumerate(segment.logprobs):
                fitting = [version for version in allowed if abs(found[version][place + number] - recorded) < 1e-4]
                assert fitting, (rollout.id, place + number)
                assert named in fitting if number == 0 else named <= max(fitting)
            seen |= {record.step - 1 - named} if segment.kind == "action" else set()
            place += len(segment.token_ids)
    assert max(seen) > 0
    metrics = {row["step"]: row for row in map(json.loads, (run / "metrics.jsonl").read_text().splitlines())}
    for step, records in steps.items():
        rewards = defaultdict(list)
        for record in records:
            rewards[record.group].append(record.outcome.reward)
        off, tokens = 0.0, 0
        for record in records:
            rollout = record.trajectory
            tokens += sum(rollout.loss_mask)
            if record.outcome.reward != pytest.approx(fmean(rewards[record.group])):
                now = logprobs_of(models[step - 1], rollout.token_ids)
                rows = zip(now, rollout.rollout_logprobs, rollout.loss_mask, strict=True)
                off += sum(abs(min(2.0, math.exp(own - recorded)) - 1) for own, recorded, acts in rows if acts)
        reported = metrics[step]["sampling/importance_sampling_ratio/deviation"]
        assert reported == pytest.approx(off / tokens, abs=1e-4), step


def test_ctrl_c_ends_after_the_step_and_leaves_nothing_in_flight(setting, processes, tmp_path):
    words = setting.train(tmp_path / "run", *AHEAD)
    command = processes.start(*words)
    assert command.interrupt_after("step 1/4", signal.SIGINT) == [130], command.said()
    assert "never retrieved" not in command.said()
    resumed = processes.start(*words)
    assert resumed.wait() == [0], resumed.said()
    check(tmp_path / "run")
