"""Metrics as JSON lines, one row a step, so that a killed run loses no finished row; and trackers, whose failures
never stop a run."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

from evoseek.protocols import MetricSink
from evoseek.storage.jsonl import ResumableJsonl

MetricRow = Mapping[str, float | None]
"""The metrics of a step by name; None for a number that was not finite."""

TOO_MANY_INVALID = "rollout/too_many_invalid"
"""1.0 in the row of a step that trained nothing, since too many of its rollouts were Invalid."""

CHARTS: Mapping[str, str] = {
    "reward": "Reward",
    "eval/reward": "Held-out score",
    "entropy": "Entropy",
    "completions/mean_length": "Response length (tokens)",
    "tools/call_frequency": "Searches a rollout",
    "browsing/share": "Rollouts that browse",
    "frac_reward_zero_std": "Groups without a signal",
    "rollout/invalid_frac": "Invalid rollouts",
    "kl": "KL to the reference",
    "sampling/sampling_logp_difference/mean": "Sampler and learner: difference of logprobs",
    "grad_norm": "Gradient norm",
    "selfplay/valid_rate": "Valid questions",
    "selfplay/pass_rate/mean": "Solver's pass rate",
    "selfplay/trainable": "Trainable questions",
    "selfplay/duplicate_rate": "Duplicate questions",
}
"""The charts of a run, by the metric without its role; a missing metric has no chart."""


class JsonlMetrics:
    """A MetricSink that appends {"step": ..., name: number, ...} to a file; null for a number that is not finite."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        numbers = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        ResumableJsonl(self.path).append([{"step": step} | numbers])


class ManyMetrics:
    """A MetricSink that passes every row to several others, or discards it if there are none."""

    def __init__(self, *sinks: MetricSink) -> None:
        self._sinks = sinks

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        for sink in self._sinks:
            sink.write(step, metrics)


def read_metrics(path: Path) -> list[dict[str, float | None]]:
    """Return the finished rows of a metrics file; none if it is missing. Raises DataError if one is damaged."""
    return list(ResumableJsonl(path).rows(_row, "row of a step and its numbers"))


def counted(rows: Sequence[MetricRow]) -> list[MetricRow]:
    """Return the rows that measure the policy: without steps that trained nothing."""
    return [row for row in rows if row.get(TOO_MANY_INVALID) is None]


def _row(value: object) -> dict[str, float | None]:
    row = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    if not all(isinstance(number, int | float | None) for number in row.values()):
        raise ValueError("a value is no number")
    numbers = {
        name: number if number is not None and abs(number) <= sys.float_info.max else None
        for name, number in cast("dict[str, float | None]", row).items()
    }
    if numbers.get("step") is None:
        raise ValueError("`step` is missing, or no number")
    return numbers


class TrackedMetrics:
    """Passes the metrics of each step to a tracker. A failure is reported once, and the tracker gets the next step.
    `last` is a file for the last step that the tracker took: a resumed run skips the steps that it repeats."""

    def __init__(self, tracker: MetricSink, name: str, *, last: Path, notify: Callable[[str], None]) -> None:
        self._tracker, self._name, self._file, self._notify = tracker, name, last, notify
        self._last, self._has_notified = _step_in(last), False

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        if step <= self._last:
            return
        try:
            self._tracker.write(step, metrics)
            self._last = step
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(f"{step}\n", encoding="utf-8")
        except Exception as error:  # other people's programs, often with a network behind them
            self._report(error)

    def close(self) -> None:
        """Let the tracker save its remaining rows, if it has a method `close`."""
        try:
            getattr(self._tracker, "close", lambda: None)()
        except Exception as error:
            self._report(error)

    def _report(self, error: Exception) -> None:
        if not self._has_notified:
            self._has_notified = True
            self._notify(
                f"The tracker {self._name} failed ({type(error).__name__}: {error}). Training continues; all metrics "
                "are in metrics.jsonl. Further failures are not reported."
            )


def _step_in(path: Path) -> int:
    with suppress(OSError, ValueError):
        return int(path.read_text(encoding="utf-8"))
    return -1
