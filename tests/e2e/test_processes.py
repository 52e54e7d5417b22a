"""`evoseek train --processes 2`: Ctrl-C finishes the step in both, and both resume the run."""

import json
import os
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


def start(setting, run_dir, *more):
    return subprocess.Popen(
        [sys.executable, "-m", "evoseek", *setting.train(run_dir, "--processes", "2", *more)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def test_ctrl_c_finishes_the_step_and_the_same_processes_resume(setting, processes, tmp_path):
    process = start(setting, tmp_path / "run", "--steps", "200")
    said = []
    for line in process.stdout:
        said.append(line)
        if line.startswith("step 1/"):
            os.killpg(process.pid, signal.SIGINT)  # what a terminal does
            break
    rest, _ = process.communicate(timeout=300)
    assert process.returncode == 130, "".join(said) + rest
    assert rest.count("Stopped after step") == 1
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    made = rows[-1]["step"]
    assert (tmp_path / "run" / "checkpoints" / f"step-{made:06d}" / "state.json").exists()

    command = processes.start(*setting.train(tmp_path / "run", "--steps", made + 1), ranks=2)
    assert command.wait() == [0, 0], command.said()
    assert f"Resuming {tmp_path / 'run'} after step {made}." in command.said()
