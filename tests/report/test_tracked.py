"""Trackers: one that fails never stops a run, and a resumed run continues its record."""

from pathlib import Path

from evoseek.report.tracked import TrackedMetrics


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
        "This is told once."
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
