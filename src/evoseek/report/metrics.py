"""Metrics as JSON lines: one row a step, so that a killed run loses no finished row."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from evoseek.corpus.resumable_jsonl import ResumableJsonl
from evoseek.protocols import MetricSink

MetricRow = Mapping[str, float | None]
"""The metrics of a step by name; None for a number that was not finite."""


class JsonlMetrics:
    """A MetricSink that appends {"step": ..., name: number, ...} to a file.

    Numbers that are not finite become null, since JSON cannot represent them.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append a row. Raises RunError when the disk does not take it."""
        numbers = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        ResumableJsonl(self.path).append([{"step": step} | numbers])


class ManyMetrics:
    """A MetricSink that hands every row to several others."""

    def __init__(self, sinks: Sequence[MetricSink]) -> None:
        self._sinks = sinks

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Hand a row on."""
        for sink in self._sinks:
            sink.write(step, metrics)


class NoMetrics:
    """A MetricSink that discards everything, for processes whose metrics another one writes."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Nothing."""


def read_metrics(path: Path) -> list[dict[str, float | None]]:
    """The finished rows of a metrics file; none if it is not there. Raises DataError if one is damaged."""
    return list(ResumableJsonl(path).rows(_row, "row of a step and its numbers"))


def _row(value: object) -> dict[str, float | None]:
    row = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    if not all(isinstance(number, int | float | None) for number in row.values()):
        raise ValueError("a value is no number")
    numbers = {name: _finite(number) for name, number in cast("dict[str, float | None]", row).items()}
    if numbers.get("step") is None:
        raise ValueError("`step` is missing, or no number")
    return numbers


def _finite(number: float | None) -> float | None:
    return number if number is not None and abs(number) <= sys.float_info.max else None
