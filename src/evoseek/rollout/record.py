"""Trajectories on disk: `trajectories.jsonl`, one JSON object a line, appended step by step.

A line holds everything of a trajectory but its latencies (so the same seed writes the same file), and the segments'
texts for a reader. A text that is the same as a segment's is not written twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import RawIOBase
from pathlib import Path

from evoseek.errors import DataError, RunError
from evoseek.rollout.trajectory_json import (
    outcome_from_json,
    outcome_to_json,
    trajectory_from_json,
    trajectory_to_json,
)
from evoseek.types import Outcome, Trajectory, TrajectoryGroup


@dataclass(frozen=True, slots=True)
class TrajectoryRecord:
    """A line: a trajectory, its outcome, the key of its group and the step whose batch it was in."""

    step: int
    group: str
    trajectory: Trajectory
    outcome: Outcome


class TrajectoryWriter:
    """Appends to a record. What was written is in the hands of the system after each `write`.

    `decode` turns ids into text (a tokenizer's `decode`).
    """

    def __init__(self, path: Path, decode: Callable[[Sequence[int]], str]) -> None:
        self._path, self._decode = path, decode

    def write(self, step: int, groups: Sequence[TrajectoryGroup]) -> None:
        """Append the trajectories of a batch, a group's replaced ones after its members: all of them, or none.

        Raises RunError.
        """
        lines = [
            self._line(TrajectoryRecord(step, group.key, trajectory, outcome))
            for group in groups
            for trajectory, outcome in (*zip(group.trajectories, group.outcomes, strict=True), *group.replaced)
        ]
        try:
            with self._path.open("ab", buffering=0) as file:
                _append(file, "".join(lines).encode("ascii"))
        except OSError as error:
            raise _unwritable(self._path, error) from error

    def _line(self, record: TrajectoryRecord) -> str:
        data = {"step": record.step, "group": record.group, "outcome": outcome_to_json(record.outcome)}
        data |= trajectory_to_json(record.trajectory, self._decode)
        return json.dumps(data, separators=(",", ":")) + "\n"


def read_trajectories(path: Path) -> Iterator[TrajectoryRecord]:
    """The records of a file in order. A last line without its end, from a killed run, is left out.

    Latencies come back as 0, and a question's metadata as JSON has it (lists for tuples). Raises DataError naming the
    line.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                data = json.loads(line)
                record = TrajectoryRecord(
                    data["step"], data["group"], trajectory_from_json(data), outcome_from_json(data["outcome"])
                )
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise DataError(
                    f"{path}:{number} is not a trajectory ({type(error).__name__}: {error}). The file was changed or "
                    "written by another version; remove the line to read the rest."
                ) from error
            yield record


def _append(file: RawIOBase, data: bytes) -> None:
    """Write all of the data to the end of a file; if that fails, cut off what came of it."""
    end, rest = file.seek(0, os.SEEK_END), memoryview(data)
    try:
        while rest:
            rest = rest[file.write(rest) or 0 :]
    except OSError:
        file.truncate(end)
        raise


def _unwritable(path: Path, error: OSError) -> RunError:
    return RunError(
        f"{path} cannot be written: {error.strerror or error}. What was there before is unharmed; make room or give "
        "access, and start the same command again."
    )
