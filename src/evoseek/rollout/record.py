"""Trajectories on disk: `trajectories.jsonl`, one JSON object a line, appended step by step.

A line holds everything of a trajectory but its latencies (so the same seed writes the same file), and the segments'
texts for a reader. A text that is the same as a segment's is not written twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evoseek.corpus.resumable_jsonl import ResumableJsonl
from evoseek.rollout.trajectory_json import (
    outcome_from_json,
    outcome_to_json,
    trajectory_from_json,
    trajectory_to_json,
)
from evoseek.types import Outcome, Trajectory, TrajectoryGroup

_COMPACT = json.JSONEncoder(separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class TrajectoryRecord:
    """A line: a trajectory, its outcome, the key of its group and the step whose batch it was in."""

    step: int
    group: str
    trajectory: Trajectory
    outcome: Outcome


class TrajectoryWriter:
    """Appends to a record. After each `write` the data has been handed to the operating system.

    `decode` turns ids into text (a tokenizer's `decode`). With the path None nothing is written, as in a process whose
    rollouts another one records.
    """

    def __init__(self, path: Path | None, decode: Callable[[Sequence[int]], str]) -> None:
        self.path, self._decode = path, decode

    def write(self, step: int, groups: Sequence[TrajectoryGroup]) -> None:
        """Append the trajectories of a batch, a group's replaced ones after its members: all of them, or none.

        Raises RunError.
        """
        if self.path is None:
            return
        ResumableJsonl(self.path, _COMPACT).append(
            self._row(TrajectoryRecord(step, group.key, trajectory, outcome))
            for group in groups
            for trajectory, outcome in group.attempts
        )

    def _row(self, record: TrajectoryRecord) -> Mapping[str, object]:
        row = {"step": record.step, "group": record.group, "outcome": outcome_to_json(record.outcome)}
        return row | trajectory_to_json(record.trajectory, self._decode)


def read_trajectories(path: Path) -> Iterator[TrajectoryRecord]:
    """The records of a file in order. A last line without its end, from a killed run, is left out.

    Latencies come back as 0, and a question's metadata as JSON has it (lists for tuples). Raises DataError naming the
    line.
    """
    return ResumableJsonl(path).rows(record_of, "trajectory")


def record_of(row: Any) -> TrajectoryRecord:
    """The record of a line. Raises ValueError, KeyError or TypeError for another object."""
    return TrajectoryRecord(row["step"], row["group"], trajectory_from_json(row), outcome_from_json(row["outcome"]))
