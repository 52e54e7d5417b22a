"""A trajectory as text for people."""

from __future__ import annotations

from evoseek.types import Outcome, Scored, Trajectory


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
