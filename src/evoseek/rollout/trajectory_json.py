"""A trajectory as a JSON object and back, exactly (see `rollout.record` for what is left out)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from evoseek.types import (
    Action,
    Invalid,
    Outcome,
    Passage,
    Question,
    Scored,
    Segment,
    StopReason,
    ToolCall,
    ToolResult,
    Trajectory,
    TrajectoryGroup,
)


def trajectory_to_json(trajectory: Trajectory, decode: Callable[[Sequence[int]], str]) -> dict[str, Any]:
    """The object of a trajectory, with the text of each segment."""
    texts = [decode(segment.token_ids) for segment in trajectory.segments]
    own = [text for text, segment in zip(texts, trajectory.segments, strict=True) if segment.kind == "action"]
    written = own or [""] * len(trajectory.actions)  # a model that was called with messages has no segments
    return {
        "id": trajectory.id,
        "role": trajectory.role,
        "question": question_to_json(trajectory.question),
        "stop_reason": trajectory.stop_reason,
        "answer": trajectory.answer,
        "failure": trajectory.failure,
        "policy_version": trajectory.policy_version,
        "segments": [_segment_to_json(*pair) for pair in zip(trajectory.segments, texts, strict=True)],
        "actions": [_action_to_json(*pair) for pair in zip(trajectory.actions, written, strict=True)],
        "tool_results": [_result_to_json(result) for result in trajectory.tool_results],
    }


def trajectory_from_json(data: Mapping[str, Any]) -> Trajectory:
    """The trajectory of an object. Raises ValueError, KeyError or TypeError for another object."""
    own = [segment["text"] for segment in data["segments"] if segment["kind"] == "action"]
    written = own or [""] * len(data["actions"])
    return Trajectory(
        id=data["id"],
        question=question_from_json(data["question"]),
        role=data["role"],
        segments=tuple(_segment_from_json(segment) for segment in data["segments"]),
        actions=tuple(_action_from_json(*pair) for pair in zip(data["actions"], written, strict=True)),
        tool_results=tuple(_result_from_json(result) for result in data["tool_results"]),
        stop_reason=StopReason(data["stop_reason"]),
        answer=data["answer"],
        failure=data["failure"],
        policy_version=data["policy_version"],
    )


def question_to_json(question: Question) -> dict[str, Any]:
    """The object of a question."""
    return {
        "id": question.id,
        "text": question.text,
        "golden_answers": question.golden_answers,
        "metadata": dict(question.metadata),
    }


def question_from_json(data: Mapping[str, Any]) -> Question:
    """The question of an object."""
    return Question(data["id"], data["text"], tuple(data["golden_answers"]), data["metadata"])


def outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    """The object of an outcome: `reward` and `parts`, or `invalid` and `detail`."""
    if isinstance(outcome, Scored):
        return {"reward": outcome.reward, "parts": dict(outcome.parts)}
    return {"invalid": outcome.reason, "detail": outcome.detail}


def outcome_from_json(data: Mapping[str, Any]) -> Outcome:
    """The outcome of an object."""
    if "invalid" in data:
        return Invalid(StopReason(data["invalid"]), data["detail"])
    return Scored(data["reward"], data["parts"])


def group_to_json(group: TrajectoryGroup) -> dict[str, Any]:
    """The object of a group, as processes of one run hand it to each other."""

    def pair(trajectory: Trajectory, outcome: Outcome) -> list[Any]:
        return [trajectory_to_json(trajectory, lambda _: ""), outcome_to_json(outcome)]

    members = [pair(*member) for member in zip(group.trajectories, group.outcomes, strict=True)]
    return {"key": group.key, "members": members, "replaced": [pair(*failed) for failed in group.replaced]}


def group_from_json(data: Mapping[str, Any]) -> TrajectoryGroup:
    """The group of an object."""
    replaced = ((trajectory_from_json(t), outcome_from_json(o)) for t, o in data["replaced"])
    return TrajectoryGroup(
        data["key"],
        tuple(trajectory_from_json(trajectory) for trajectory, _ in data["members"]),
        tuple(outcome_from_json(outcome) for _, outcome in data["members"]),
        tuple((trajectory, outcome) for trajectory, outcome in replaced if isinstance(outcome, Invalid)),
    )


def _segment_to_json(segment: Segment, text: str) -> dict[str, Any]:
    data: dict[str, Any] = {"kind": segment.kind, "text": text, "ids": segment.token_ids}
    if segment.policy_version is not None:
        data["policy_version"] = segment.policy_version
    if not segment.logprobs:
        return data
    if any(_float32(value) != value for value in segment.logprobs):
        return {**data, "logprobs": segment.logprobs}
    # Nine digits name a float32 exactly, where the same number as a float64 takes seventeen.
    return {**data, "float32": True, "logprobs": [float(f"{value:.9g}") for value in segment.logprobs]}


def _segment_from_json(data: Mapping[str, Any]) -> Segment:
    logprobs = (_float32(value) if "float32" in data else value for value in data.get("logprobs", ()))
    return Segment(data["kind"], tuple(data["ids"]), tuple(logprobs), data.get("policy_version"))


def _float32(value: float) -> float:
    """The nearest number of single precision."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return float("inf")


def _action_to_json(action: Action, segment_text: str) -> dict[str, Any]:
    data = _given({**asdict(action), "tool_calls": [asdict(call) for call in action.tool_calls]})
    if action.text == segment_text:
        del data["text"]
    return data


def _action_from_json(data: Mapping[str, Any], segment_text: str) -> Action:
    calls = tuple(ToolCall(**call) for call in data.get("tool_calls", ()))
    return Action(data.get("text", segment_text), calls, data.get("answer"), data.get("question"), data.get("problem"))


def _result_to_json(result: ToolResult) -> dict[str, Any]:
    passages = [_given(asdict(passage)) for passage in result.passages]
    return {"call": asdict(result.call), "text": result.text, "passages": passages}


def _result_from_json(data: Mapping[str, Any]) -> ToolResult:
    passages = tuple(Passage(**passage) for passage in data["passages"])
    return ToolResult(ToolCall(**data["call"]), data["text"], passages)


def _given(data: dict[str, Any]) -> dict[str, Any]:
    """Without what is None or an empty list."""
    return {key: value for key, value in data.items() if value is not None and value != []}
