"""Trackers beside metrics.jsonl: one that fails never stops a run, and a resumed run writes no step twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from evoseek.errors import ConfigError
from evoseek.protocols import MetricSink


class TrackedMetrics:
    """Hands the metrics of each step to a tracker. If it fails, the user is told once, and it gets the next step.

    `last` is a file for the last step that the tracker took: steps that a resumed run makes again are the same as
    before, and are left out.
    """

    def __init__(self, tracker: MetricSink, name: str, *, last: Path, notify: Callable[[str], None]) -> None:
        self._tracker, self._name, self._file, self._notify = tracker, name, last, notify
        self._last, self._is_told = _step_in(last), False

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Hand a step on, unless the tracker has it."""
        if step <= self._last:
            return
        try:
            self._tracker.write(step, metrics)
            self._last = step
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(f"{step}\n", encoding="utf-8")
        except Exception as error:  # other people's programs, often with a network behind them
            self._tell(error)

    def close(self) -> None:
        """Let the tracker save what is left, if it has a method `close`."""
        try:
            getattr(self._tracker, "close", lambda: None)()
        except Exception as error:
            self._tell(error)

    def _tell(self, error: Exception) -> None:
        if not self._is_told:
            self._is_told = True
            self._notify(
                f"The tracker {self._name} failed ({type(error).__name__}: {error}). Training continues; all metrics "
                "are in metrics.jsonl. This is told once."
            )


def missing_extra(name: str, error: ImportError) -> ConfigError:
    """The error for a tracker whose package is not installed."""
    return ConfigError(
        f"The tracker {name} needs a package that is not installed ({error}). Install it: pip install 'evoseek[track]'."
    )


def _step_in(path: Path) -> int:
    with suppress(OSError, ValueError):
        return int(path.read_text(encoding="utf-8"))
    return -1
