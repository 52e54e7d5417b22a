"""Training by several processes, started by torchrun or as it would: one policy, one run, resumable by any number."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

pytestmark = pytest.mark.slow

LOGS = ("metrics.jsonl", "trajectories.jsonl")
WEIGHTS = "checkpoints/step-000004/policy/model.safetensors"


def by_torchrun(setting, run_dir):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    process = subprocess.Popen(
        [*launcher, "-m", "evoseek", *setting.train(run_dir)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=240)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, output
    return output


@pytest.fixture(scope="module")
def whole(setting, tmp_path_factory):
    """A run of two ranks that nothing interrupted."""
    run = tmp_path_factory.mktemp("ranks") / "whole"
    output = by_torchrun(setting, run)
    assert output.count("step 4/4") == 1  # one of the two speaks
    return run


@pytest.fixture(scope="module")
def killed(setting, processes, tmp_path_factory):
    """The same, each rank killed when it has made its third update: after the second checkpoint."""
    run = tmp_path_factory.mktemp("ranks") / "killed"
    command = processes.start(*setting.train(run), ranks=2, watch=["update"], kill_at=3, moment="after")
    assert -signal.SIGKILL in command.wait(), command.said()  # the other may find it gone before its own end
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"step-000001", "step-000002"}
    return run


def copy_of(run, place):
    shutil.copytree(run, place)
    return place


def test_a_run_of_two_ranks_is_a_complete_run(whole):
    rows = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 1, 2, 3, 4]
    assert rows[4]["eval/n"] == 6
    assert rows[1]["rollout/num"] == 12
    assert len((whole / "trajectories.jsonl").read_text().splitlines()) == 4 * 12
    model = AutoModelForCausalLM.from_pretrained(whole / "checkpoints/step-000004/policy")
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())


def test_one_rank_learns_the_same(trained, whole):
    """Not the same bits (sums are in another order), but the same rollouts and nearly the same weights."""
    assert_alike(trained.path, whole)


def test_killed_on_two_ranks_and_resumed_on_two_gives_the_same_bits(setting, processes, whole, killed, tmp_path):
    run = copy_of(killed, tmp_path / "run")
    command = processes.start(*setting.train(run), ranks=2)
    assert command.wait() == [0, 0], command.said()
    assert "Resuming" in command.said()
    for name in (*LOGS, WEIGHTS):
        assert (run / name).read_bytes() == (whole / name).read_bytes(), name


def test_killed_on_two_ranks_and_resumed_on_one(setting, cli, whole, killed, tmp_path):
    run = copy_of(killed, tmp_path / "run")
    status, said, err = cli(*setting.train(run))
    assert status == 0, err
    assert "Resuming" in said
    assert_alike(run, whole)


def assert_alike(run, other):
    ids = [
        [json.loads(line)["segments"][-1]["ids"] for line in (path / "trajectories.jsonl").read_text().splitlines()]
        for path in (run, other)
    ]
    assert ids[0] == ids[1]
    mine, theirs = load_file(run / WEIGHTS), load_file(other / WEIGHTS)
    for name, value in mine.items():
        torch.testing.assert_close(value, theirs[name], atol=1e-4, rtol=1e-3)
