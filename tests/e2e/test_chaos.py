"""A run killed with SIGKILL at any moment, also inside a save, resumes to the very same bits.

At 3 random points in `make check`, 6 in `make test`, 100 in `make night`.
"""

import json
import random
import signal
from pathlib import Path

import pytest
from tests.rings import sized

POINTS = sized(check=3, test=6, night=100)
FILES = (
    "metrics.jsonl",
    "trajectories.jsonl",
    "checkpoints/step-000004/policy.optimizer/rank-00000-of-00001.safetensors",
    "checkpoints/step-000004/policy/model.safetensors",
)

pytestmark = pytest.mark.slow


WATCHED = ("replace", "fsync", "unlink", "round", "update", "row", "rollout")
MOMENTS = ("before", "after", "torn")
UPDATES = (2, 3, 4, 2, 3, 4)  # each of the first points comes after this update, and so after a checkpoint


@pytest.fixture(scope="module")
def train(setting, processes):
    """`train(run_dir, kill_at=n, moment="torn")`: the command, when it has ended, and its status."""

    def run(run_dir: Path, **kill):
        command = processes.start(*setting.train(run_dir), watch=WATCHED, **kill)
        (status,) = command.wait()
        return command, status

    return run


@pytest.fixture(scope="module")
def whole(train, tmp_path_factory) -> tuple[dict[str, bytes], list[int]]:
    """Files of an uninterrupted run, and the numbers of its events that matter: the first, the update of each step, and
    the last."""
    run_dir = tmp_path_factory.mktemp("whole")
    command, status = train(run_dir)
    assert status == 0, command.said()
    updates = [number for number, event in enumerate(command.events, 1) if event == "update"]
    assert len(updates) == 4
    return contents(run_dir), [1, *updates, len(command.events)]


def contents(run_dir: Path) -> dict[str, bytes]:
    state = json.loads((run_dir / "checkpoints/step-000004/state.json").read_text())["body"]
    counters = json.dumps(state["learners"], sort_keys=True).encode()
    return {name: (run_dir / name).read_bytes() for name in FILES} | {"counters": counters}


def goes_on(train, run_dir: Path, expected: dict[str, bytes]) -> None:
    command, status = train(run_dir)
    assert status == 0, command.said()
    assert contents(run_dir) == expected


def test_runs_are_reproducible(train, whole, tmp_path):
    goes_on(train, tmp_path / "again", whole[0])


@pytest.mark.parametrize("point", range(POINTS))
def test_killed_anywhere_resumes_bit_for_bit(train, whole, tmp_path, point):
    expected, events = whole
    rng = random.Random(point)
    first, last = (events[UPDATES[point]], events[UPDATES[point] + 1]) if point < len(UPDATES) else (1, events[-1])
    kill_at, moment = rng.randint(first + 1, last), rng.choice(MOMENTS)
    assert train(tmp_path / "run", kill_at=kill_at, moment=moment)[1] == -signal.SIGKILL
    goes_on(train, tmp_path / "run", expected)


def test_killed_again_and_again(train, whole, tmp_path):
    """After the first checkpoint, then four times within a step's events: also before the last work is taken up."""
    expected, events = whole
    rng = random.Random("again")
    for kill_at in (events[2], *(rng.randint(1, events[3] - events[2]) for _ in range(4))):
        if train(tmp_path / "run", kill_at=kill_at, moment=rng.choice(MOMENTS))[1] == 0:
            break
    goes_on(train, tmp_path / "run", expected)
