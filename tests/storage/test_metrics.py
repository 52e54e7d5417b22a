"""Trackers: one that fails never stops a run, and a resumed run continues its record."""

import json
from pathlib import Path

import pytest
from tests.raising import raises

from evoseek.storage.metrics import JsonlMetrics, ManyMetrics, TrackedMetrics, read_metrics


def test_rows_are_appended_and_come_back(tmp_path):
    path = tmp_path / "m.jsonl"
    JsonlMetrics(path).write(1, {"reward": 0.5})
    JsonlMetrics(path).write(2, {"reward": float("nan"), "loss": float("inf")})
    assert read_metrics(path) == [{"step": 1, "reward": 0.5}, {"step": 2, "reward": None, "loss": None}]
    for line in path.read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)


def test_missing_and_damaged(tmp_path):
    path = tmp_path / "m.jsonl"
    assert read_metrics(path) == []
    for row in ("[1]", '{"reward": 1.0}', '{"step": 1, "reward": "much"}'):
        path.write_text(f'{{"step": 1}}\n{row}\n')
        with raises("rows.invalid", match=r"m\.jsonl:2 is not a row of a step and its numbers"):
            read_metrics(path)
    with raises("disk.failed", match="cannot be written"):
        JsonlMetrics(tmp_path / "none" / "m.jsonl").write(1, {})


def test_a_row_that_is_being_written_is_left_out(tmp_path):
    path = tmp_path / "m.jsonl"
    JsonlMetrics(path).write(1, {"reward": 0.5})
    with path.open("a") as file:
        file.write('{"step": 2, "rew')
    assert read_metrics(path) == [{"step": 1, "reward": 0.5}]


def test_every_sink_gets_every_row_as_it_was_given(tmp_path):
    sinks = [JsonlMetrics(tmp_path / name) for name in ("one.jsonl", "other.jsonl")]
    many = ManyMetrics(*sinks)
    many.write(1, {"reward": 0.5})
    many.write(2, {"reward": 0.75, "loss": -1.0})
    expected = [{"step": 1, "reward": 0.5}, {"step": 2, "reward": 0.75, "loss": -1.0}]
    assert [read_metrics(sink.path) for sink in sinks] == [expected] * 2
    ManyMetrics().write(1, {"reward": 0.5})


class Tracker:
    """Fails at some steps."""

    def __init__(self, *failing: int) -> None:
        self.rows: dict[int, dict[str, float]] = {}
        self._failing = failing

    def write(self, step, metrics):
        if step in self._failing:
            raise OSError("the server is gone")
        assert step not in self.rows
        self.rows[step] = dict(metrics)

    def close(self):
        raise ValueError("also")


def test_a_failure_is_told_once_and_later_steps_are_still_handed_on(tmp_path: Path) -> None:
    tracker, told = Tracker(2, 3), []
    tracked = TrackedMetrics(tracker, "mine", last=tmp_path / "trackers" / "mine", notify=told.append)
    for step in range(1, 5):
        tracked.write(step, {"reward": float(step)})
    tracked.close()
    assert sorted(tracker.rows) == [1, 4]
    assert told == [
        "The tracker mine failed (OSError: the server is gone). Training continues; all metrics are in metrics.jsonl. "
        "Further failures are not reported."
    ]


def test_steps_that_are_made_again_are_not_written_twice(tmp_path: Path) -> None:
    tracker, last = Tracker(), tmp_path / "mine"
    first = TrackedMetrics(tracker, "mine", last=last, notify=print)
    for step in (0, 1, 2):
        first.write(step, {})
    resumed = TrackedMetrics(tracker, "mine", last=last, notify=print)
    for step in (2, 3):
        resumed.write(step, {})
    assert sorted(tracker.rows) == [0, 1, 2, 3]
