"""`evoseek train --processes 2`: Ctrl-C finishes the step in both, and both resume the run."""

import json
import signal

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.merge]


def test_ctrl_c_finishes_the_step_and_the_same_processes_resume(setting, processes, tmp_path):
    command = processes.start(*setting.train(tmp_path / "run", "--processes", "2", "--steps", "200"))
    assert command.interrupt_after("step 1/", signal.SIGINT) == [130], command.said()
    assert command.said().count("Stopped after step") == 1
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    made = rows[-1]["step"]
    assert (tmp_path / "run" / "checkpoints" / f"step-{made:06d}" / "state.json").exists()

    command = processes.start(*setting.train(tmp_path / "run", "--steps", made + 1), ranks=2)
    assert command.wait() == [0, 0], command.said()
    assert f"Resuming {tmp_path / 'run'} after step {made}." in command.said()
