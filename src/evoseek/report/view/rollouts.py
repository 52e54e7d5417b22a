"""The rollouts of a run for display: the list's columns, and further details for a rollout's page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evoseek.questions.outcomes import REJECTED

_DIGITS = 5  # significant digits of a logprob or an advantage on the page


@dataclass(frozen=True, slots=True)
class RecordedRollout:
    """A line of trajectories.jsonl for the list. `reward` is None if Invalid, `hops` the number of hops or searches of
    the question or its proposal, `stated` the question that a proposer wrote."""

    id: str
    step: int
    role: str
    group: str
    question_id: str
    question: str
    golden_answers: tuple[str, ...]
    stop_reason: str
    reward: float | None
    parts: Mapping[str, float]
    invalid: str | None
    detail: str
    hops: int | None
    searches: int
    tokens: int
    answer: str | None
    stated: str | None

    @property
    def rejected(self) -> str | None:
        """The reason for a proposal's rejection; None for any other rollout."""
        return next((part.removeprefix(REJECTED) for part in self.parts if part.startswith(REJECTED)), None)

    @property
    def episode(self) -> str:
        """The common key of an episode's rollouts: a proposal, the readings that verified it, the attempts at its
        question. Without self-play: the group's key."""
        proposed, marker, _ = self.id.partition("/proposals/")
        return f"{proposed}/{self.question_id}" if marker else self.group.removesuffix("/checks")

    @property
    def shown_role(self) -> str:
        """The role; `reader` for a reading that verified a question, by any policy."""
        return "reader" if self.group.endswith("/checks") else self.role


@dataclass(frozen=True, slots=True)
class RecordedCredit:
    """The learner's input for a rollout, by action token: advantages (one number if all are the same), and the
    learner's logprobs if recorded."""

    advantages: Sequence[float] | float
    logprobs: Sequence[float] = ()


def rollout_of(row: Any) -> RecordedRollout:
    """Read the rollout of a line. Raises ValueError, LookupError, TypeError or AttributeError for any other object."""
    question, outcome = row["question"], row["outcome"]
    given = {**(question.get("task") or {}), **(question.get("metadata") or {})}
    invalid = outcome.get("invalid")
    return RecordedRollout(
        id=str(row["id"]),
        step=int(row["step"]),
        role=str(row["role"]),
        group=str(row["group"]),
        question_id=str(question["id"]),
        question=str(question["text"]),
        golden_answers=tuple(map(str, question["golden_answers"])),
        stop_reason=str(row["stop_reason"]),
        reward=None if invalid is not None else float(outcome["reward"]),
        parts={str(part): float(value) for part, value in (outcome.get("parts") or {}).items()},
        invalid=None if invalid is None else str(invalid),
        detail=str(outcome.get("detail") or ""),
        hops=_whole(given.get("hops", given.get("requested") or None)),
        searches=len(row["tool_results"]) + len(row.get("opening", ())),
        tokens=sum(len(segment["ids"]) for segment in row["segments"] if segment["kind"] == "action"),
        answer=None if row.get("answer") is None else str(row["answer"]),
        stated=next((str(action["question"]) for action in reversed(row["actions"]) if action.get("question")), None),
    )


def credit_of(row: Any) -> tuple[str, RecordedCredit]:
    """Read a trajectory's id and credit from a line of samples.jsonl. Raises as `rollout_of`."""
    own: Any = row["advantages"]
    advantages = [float(value) for value in own] if isinstance(own, list) else float(own)
    return str(row["id"]), RecordedCredit(advantages, tuple(float(value) for value in row.get("old_logprobs", ())))


def detail_of(row: Any, credit: RecordedCredit | None) -> dict[str, Any]:
    """Read the further details of a rollout's page: segments with ids and logprobs, parsed actions, found passages, and
    the question's metadata and task; if known for each action token, also `advantages`, and `differences` of the
    sampler's and the learner's logprobs. Raises as `rollout_of`."""
    segments: list[Any] = row["segments"] or list(_turns(row))
    actions, acted = row["actions"], sum(segment["kind"] == "action" for segment in segments)
    own = actions[len(actions) - acted :]  # not those that stand in the prompt, with their results
    given = sum(len(action.get("tool_calls", ())) for action in actions[: len(actions) - acted])
    shown: dict[str, Any] = {
        "id": row["id"],
        "version": row.get("policy_version", 0),
        "failure": row.get("failure"),
        "outcome": row["outcome"],
        "metadata": row["question"].get("metadata") or {},
        "task": row["question"].get("task") or {},
        "segments": [_segment(segment) for segment in segments],
        "actions": [{key: part for key, part in action.items() if key != "text"} for action in own],
        "results": [_result(result, segments) for result in row["tool_results"][given:]],
        "opening": [_result({**result, "text": ""}, segments) for result in row.get("opening", ())],
    }
    if credit is None:
        return shown
    sampled = [logprob for segment in row["segments"] for logprob in segment.get("logprobs", ())]
    gained = credit.advantages
    if isinstance(gained, float | int):
        shown["advantages"] = _rounded(gained)
    elif len(gained) == len(sampled):
        shown["advantages"] = list(map(_rounded, gained))
    if len(credit.logprobs) == len(sampled):
        shown["differences"] = [_rounded(one - other) for one, other in zip(sampled, credit.logprobs, strict=True)]
    return shown


def _turns(row: Any) -> Iterator[dict[str, Any]]:
    """Yield the turns of a model called with messages, as segments without tokens, which are unknown."""
    results = iter(row["tool_results"])
    if found := [passage["text"] for result in row.get("opening", ()) for passage in result["passages"]]:
        yield {"kind": "prompt", "text": "\n\n".join(found), "ids": []}
    for action in row["actions"]:
        yield {"kind": "action", "text": action.get("text", ""), "ids": []}
        if found := [result["text"] for _, result in zip(action.get("tool_calls", ()), results, strict=False)]:
            yield {"kind": "observation", "text": "\n".join(found), "ids": []}


def _segment(segment: Any) -> dict[str, Any]:
    shown: dict[str, Any] = {"kind": segment["kind"], "text": segment["text"], "length": len(segment["ids"])}
    if segment["kind"] == "action":
        shown |= {"ids": segment["ids"], "logprobs": list(map(_rounded, segment.get("logprobs", ())))}
    return shown


def _result(result: Any, segments: Sequence[Any]) -> dict[str, Any]:
    """Leave out the text if an observation holds it already."""
    text = str(result["text"])
    is_said = not text or any(
        _letters(text) in _letters(segment["text"]) for segment in segments if segment["kind"] == "observation"
    )
    passages = [
        {key: passage.get(key) for key in ("id", "document_id", "title", "start", "end", "score")}
        for passage in result["passages"]
    ]
    return {"call": result["call"], "passages": passages} | ({} if is_said else {"text": text})


def _letters(text: str) -> str:
    """Fold case and spaces as a tokenizer may do."""
    return "".join(text.casefold().split())


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
