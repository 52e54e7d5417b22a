"""Trajectories on disk: `trajectories.jsonl`, one JSON object a line, appended step by step.

A line holds a trajectory without its latencies (so the same seed writes the same file), and the segments' texts for
readers. A text that equals a segment's is not written twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from evoseek.errors import first_problem
from evoseek.storage.jsonl import ResumableJsonl
from evoseek.types import Action, Outcome, ProposerTask, Scored, Segment, ToolResult, Trajectory, TrajectoryGroup

COMPACT = json.JSONEncoder(separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class TrajectoryRecord:
    """A line: a trajectory, its outcome, its group's key and its step."""

    step: int
    group: str
    trajectory: Trajectory
    outcome: Outcome


_RECORD, _TASK = TypeAdapter(TrajectoryRecord), TypeAdapter(ProposerTask)
_ACTION, _RESULT = TypeAdapter(Action), TypeAdapter(ToolResult)


class TrajectoryWriter:
    """A writer that appends to a record. After each `write` the data is with the operating system.

    `decode` is a tokenizer's `decode`. With the path None nothing is written, as in a process whose rollouts another
    process records.
    """

    def __init__(self, path: Path | None, decode: Callable[[Sequence[int]], str]) -> None:
        self.path, self._decode = path, decode

    def write(self, step: int, groups: Sequence[TrajectoryGroup]) -> None:
        """Append the trajectories of a batch, a group's replaced ones after its members: all of them, or none.

        Raises RunError.
        """
        if self.path is None:
            return
        ResumableJsonl(self.path, COMPACT).append(
            row_of(TrajectoryRecord(step, group.key, trajectory, outcome), self._decode)
            for group in groups
            for trajectory, outcome in group.attempts
        )


def read_trajectories(path: Path) -> Iterator[TrajectoryRecord]:
    """Yield the records of a file in order. An incomplete last line, from a killed run, is left out.

    Latencies come back as 0, and a question's metadata as JSON has it (lists for tuples). Raises DataError naming the
    line.
    """
    return ResumableJsonl(path).rows(record_of, "trajectory")


def row_of(record: TrajectoryRecord, decode: Callable[[Sequence[int]], str]) -> Mapping[str, object]:
    """Return the object of a line, with the text of each segment."""
    trajectory, question, outcome = record.trajectory, record.trajectory.question, record.outcome
    texts = [decode(segment.token_ids) for segment in trajectory.segments]
    own = [text for text, segment in zip(texts, trajectory.segments, strict=True) if segment.kind == "action"]
    written = [""] * (len(trajectory.actions) - len(own)) + own  # actions in messages or a prompt have no segment
    return {
        "step": record.step,
        "group": record.group,
        "outcome": {"reward": outcome.reward, "parts": dict(outcome.parts)}
        if isinstance(outcome, Scored)
        else {"invalid": outcome.reason, "detail": outcome.detail},
        "id": trajectory.id,
        "role": trajectory.role,
        "question": {
            "id": question.id,
            "text": question.text,
            "golden_answers": question.golden_answers,
            "metadata": question.metadata,
            **({} if question.task is None else {"task": _TASK.dump_python(question.task, exclude_defaults=True)}),
        },
        "stop_reason": trajectory.stop_reason,
        "answer": trajectory.answer,
        "failure": trajectory.failure,
        "policy_version": trajectory.policy_version,
        "segments": [_segment_row(*pair) for pair in zip(trajectory.segments, texts, strict=True)],
        "actions": [_action_row(*pair) for pair in zip(trajectory.actions, written, strict=True)],
        "tool_results": [_result_row(result) for result in trajectory.tool_results],
        **({"opening": [_result_row(result) for result in trajectory.opening]} if trajectory.opening else {}),
    }


def record_of(row: Any) -> TrajectoryRecord:
    """Return the record of a line. Raises ValueError, LookupError, TypeError or AttributeError for another object."""
    own = [segment["text"] for segment in row["segments"] if segment["kind"] == "action"]
    written = [""] * (len(row["actions"]) - len(own)) + own
    trajectory = {
        **row,
        "segments": [{**segment, "token_ids": segment["ids"], **_logprobs(segment)} for segment in row["segments"]],
        "actions": [{"text": text, **action} for action, text in zip(row["actions"], written, strict=True)],
    }
    outcome = {"reason": row["outcome"].get("invalid"), **row["outcome"]}
    try:
        return _RECORD.validate_python({**row, "trajectory": trajectory, "outcome": outcome})
    except ValidationError as error:
        raise ValueError(first_problem(error)) from error


def _result_row(result: ToolResult) -> Mapping[str, object]:
    row = _RESULT.dump_python(result, exclude_none=True, exclude={"latency_s", "queries"}, warnings=False)
    for passage in row["passages"]:
        if not passage["copies"]:
            del passage["copies"]
    return row


def _segment_row(segment: Segment, text: str) -> Mapping[str, object]:
    row: dict[str, object] = {"kind": segment.kind, "text": text, "ids": segment.token_ids}
    if segment.policy_version is not None:
        row["policy_version"] = segment.policy_version
    if segment.ended_version is not None:
        row["ended_version"] = segment.ended_version
    if segment.cause:
        row["cause"] = segment.cause
    if not segment.logprobs:
        return row
    if _float32(segment.logprobs) != [*segment.logprobs]:
        return {**row, "logprobs": segment.logprobs}
    # Nine digits name a float32 exactly; the same number as a float64 takes seventeen.
    return {**row, "float32": True, "logprobs": [float(f"{value:.9g}") for value in segment.logprobs]}


def _action_row(action: Action, segment_text: str) -> Mapping[str, object]:
    row: dict[str, object] = _ACTION.dump_python(action, exclude_defaults=True, warnings=False)
    return row if action.text != segment_text else {key: value for key, value in row.items() if key != "text"}


def _logprobs(segment: Mapping[str, Any]) -> Mapping[str, object]:
    return {"logprobs": _float32(segment["logprobs"])} if "float32" in segment else {}


def _float32(values: Sequence[float]) -> list[float]:
    with np.errstate(over="ignore"):  # beyond its range they are infinite
        return np.asarray(values, np.float32).tolist()
