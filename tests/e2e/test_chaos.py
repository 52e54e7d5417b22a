"""A run killed with SIGKILL at any moment, also inside a save, resumes to the very same bits.

EVOSEEK_CHAOS sets the number of random points (20 by default; `make chaos` takes 100).
"""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

POINTS = int(os.environ.get("EVOSEEK_CHAOS", "20"))
FILES = (
    "metrics.jsonl",
    "trajectories.jsonl",
    "checkpoints/step-000004/policy.optimizer/rank-00000-of-00001.safetensors",
    "checkpoints/step-000004/policy/model.safetensors",
)

pytestmark = pytest.mark.slow


class ForkServer:
    def __init__(self, config: Path, output: Path):
        self.config, self.output = config, output
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("chaos_child.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def train(self, run_dir: Path, *, kill_at: int | None = None, moment: str = "before") -> dict:
        order = {
            "config": str(self.config),
            "run_dir": str(run_dir),
            "kill_at": kill_at,
            "moment": moment,
            "output": str(self.output),
        }
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@pytest.fixture(scope="module")
def server(setting, tmp_path_factory):
    server = ForkServer(setting.config, tmp_path_factory.mktemp("chaos") / "output")
    yield server
    server.process.stdin.close()
    server.process.wait(timeout=30)


@pytest.fixture(scope="module")
def whole(server, tmp_path_factory) -> tuple[dict[str, bytes], int]:
    """Files of an uninterrupted run, and the number of its events."""
    run_dir = tmp_path_factory.mktemp("whole")
    result = server.train(run_dir)
    assert result.get("status") == 0, result["output"]
    return contents(run_dir), result["events"]


def contents(run_dir: Path) -> dict[str, bytes]:
    state = json.loads((run_dir / "checkpoints/step-000004/state.json").read_text())["body"]
    counters = json.dumps(state["learners"], sort_keys=True).encode()
    return {name: (run_dir / name).read_bytes() for name in FILES} | {"counters": counters}


def test_runs_are_reproducible(server, whole, tmp_path):
    server.train(tmp_path / "again")
    assert contents(tmp_path / "again") == whole[0]


@pytest.mark.parametrize("point", range(POINTS))
def test_killed_anywhere_resumes_bit_for_bit(server, whole, tmp_path, point):
    expected, events = whole
    rng = random.Random(point)
    kill_at, moment = rng.randint(1, events), rng.choice(("before", "after", "torn"))
    assert server.train(tmp_path / "run", kill_at=kill_at, moment=moment)["killed"]
    result = server.train(tmp_path / "run")
    assert result.get("status") == 0, result["output"]
    assert contents(tmp_path / "run") == expected


def test_killed_again_and_again(server, whole, tmp_path):
    """Twelve kills in one run, some of them before it has taken up the work of the last."""
    rng = random.Random("again")
    for _ in range(12):
        if not server.train(
            tmp_path / "run", kill_at=rng.randint(1, 60), moment=rng.choice(("before", "after", "torn"))
        )["killed"]:
            break
    result = server.train(tmp_path / "run")
    assert result.get("status") == 0, result["output"]
    assert contents(tmp_path / "run") == whole[0]
