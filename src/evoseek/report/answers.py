"""Answers and scores, as text and as JSON values."""

from __future__ import annotations

from typing import cast

from evoseek.types import Outcome, Passage, Scored, Trajectory


def answer_text(trajectory: Trajectory) -> str:
    """The answer, the searches, and the found passages that contain the answer (or a note that there are none). Without
    an answer: the model's output in every turn."""
    answer = trajectory.answer
    ending = trajectory.failure or trajectory.stop_reason
    lines = [f"Answer: {answer}" if answer else f"No answer ({ending}).", "Searches:"]
    for number, result in enumerate(trajectory.tool_results, start=1):
        titles = ", ".join(passage.title for passage in result.passages) or "nothing found"
        asked = "; ".join(map(_argument, result.call.arguments.values()))
        lines.append(f"  {number}. {result.call.name}: {asked}  ->  {titles}")
    lines += [] if trajectory.tool_results else ["  none"]
    if answer is None:
        lines.append("What the model wrote:")
        lines += [f"  {number}. {action.text.strip()}" for number, action in enumerate(trajectory.actions, start=1)]
        return "\n".join(lines if trajectory.actions else [*lines, "  nothing"])
    lines.append("Passages that hold the answer:")
    lines += [f"  [{p.id}] {p.title}: {p.text}{_cited(p)}" for p in _support(trajectory)] or ["  none"]
    return "\n".join(lines)


def answer_json(trajectory: Trajectory) -> dict[str, object]:
    """The same as JSON values; `answer` is null if there is none."""
    return {
        "question": trajectory.question.text,
        "answer": trajectory.answer,
        "stop_reason": trajectory.stop_reason.value,
        "failure": trajectory.failure,
        "searches": [
            {
                "tool": result.call.name,
                "arguments": dict(result.call.arguments),
                "found": [{"id": passage.id, "title": passage.title} for passage in result.passages],
            }
            for result in trajectory.tool_results
        ],
        "support": [{"id": p.id, "title": p.title, "text": p.text, **p.place} for p in _support(trajectory)],
        "written": [action.text for action in trajectory.actions],
    }


def _support(trajectory: Trajectory) -> list[Passage]:
    """The found passages that contain the answer, each once."""
    answer = (trajectory.answer or "").casefold()
    passages = {p.id: p for result in trajectory.tool_results for p in result.passages}
    return [p for p in passages.values() if answer and answer in p.contents.casefold()]


def _cited(passage: Passage) -> str:
    """The citation of a passage that was read from a file, on a line of its own."""
    return f"\n    from {passage.citation}" if passage.file else ""


def _argument(value: object) -> str:
    return ", ".join(map(str, cast("list[object]", value))) if isinstance(value, list) else str(value)


def trajectory_text(trajectory: Trajectory, outcome: Outcome) -> str:
    """The question, then each turn: the policy's text and the tools' results, then the outcome."""
    lines = [f"question: {trajectory.question.text}"]
    results = iter(trajectory.tool_results)
    for action in trajectory.actions:
        lines.append(f"  policy: {' '.join(action.text.split())}")
        for _ in action.tool_calls:
            result = next(results, None)
            if result is not None:
                titles = ", ".join(passage.title for passage in result.passages)
                lines.append(f"  {result.call.name}: {len(result.passages)} passages ({titles})")
    golden = " | ".join(trajectory.question.golden_answers)
    verdict = f"reward {outcome.reward:g}" if isinstance(outcome, Scored) else f"invalid: {outcome.reason}"
    lines.append(
        f"  answer: {trajectory.answer or 'none'} ({verdict}; right: {golden}; ended: {trajectory.stop_reason})"
    )
    return "\n".join(lines)
