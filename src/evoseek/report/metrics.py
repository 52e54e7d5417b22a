"""Metrics as JSON lines: one row a step, appended and flushed, so that a killed run loses no finished row."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from evoseek.errors import DataError, RunError


class JsonlMetrics:
    """A MetricSink that appends {"step": ..., name: number, ...} to a file.

    The file is opened for each row, so a run directory may cut it back at any time. Numbers that are not finite become
    null: JSON has no other word for them.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append a row. Raises RunError when the disk does not take it."""
        row = {"step": step} | {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        except OSError as error:
            raise RunError(
                f"{self.path} cannot be written ({error.strerror}). Free some space or check the permissions, then "
                "give the same command again: it resumes from the last checkpoint."
            ) from error


class NoMetrics:
    """A MetricSink for processes whose numbers another one writes."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Nothing."""


def read_metrics(path: Path) -> list[dict[str, float | None]]:
    """The rows of a metrics file; none if it is not there. Raises DataError if a row is damaged."""
    if not path.exists():
        return []
    rows: list[dict[str, float | None]] = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            rows.append(_row(json.loads(line)))
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}:{number} is damaged: {error}. Remove the line to read the others.") from error
    return rows


def _row(value: object) -> dict[str, float | None]:
    row = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    if "step" not in row or not all(isinstance(number, int | float | None) for number in row.values()):
        raise ValueError("it is no row of a step and its numbers")
    return cast("dict[str, float | None]", row)
