"""`evoseek train --processes 2`: Ctrl-C finishes the step in both, and the run is resumed."""

import json
import os
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


def test_ctrl_c_finishes_the_step_and_the_same_command_resumes(setting, processes, tmp_path):
    """The command is a process of its own with two more; those that resume begin as it begins them, at less expense."""
    words = setting.train(tmp_path / "run", "--processes", "2", "--steps")
    process = subprocess.Popen(
        [sys.executable, "-m", "evoseek", *words, "200"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
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

    resumed = processes.start(*words, made + 1, ranks=2)
    assert resumed.wait() == [0, 0], resumed.said()
    assert f"Resuming {tmp_path / 'run'} after step {made}." in resumed.said()
