"""The solver's most frequent answer as the label: the control without the proposer's answer (as in R-Zero, arXiv
2508.05004, and SQLM, arXiv 2508.03682). If the solver is wrong more often than right, its errors are reinforced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from evoseek.reward.answer import METRICS, normalise
from evoseek.types import Outcome, Scored, TrajectoryGroup


def majority_answer(answers: Iterable[str | None]) -> str | None:
    """The most frequent answer, compared in normal form and given as it was first written; of equals the first.

    None if there is no answer of which the normal form leaves anything.
    """
    votes: Counter[str] = Counter()
    written: dict[str, str] = {}
    for answer in answers:
        if answer is not None and (normal := normalise(answer)):
            votes[normal] += 1
            written.setdefault(normal, answer)
    return written[votes.most_common(1)[0][0]] if votes else None


def relabel(group: TrajectoryGroup, metric: str = "exact_match") -> TrajectoryGroup:
    """The group with its valid members scored against their majority answer; all wrong if there is none.

    `metric` (of `reward.answer`) names the part of each outcome that is the answer's; what else is in a reward, such as
    that for evidence, stays. The part `label/agrees` is 1 if the majority gives an answer that the question accepts.
    The trajectories, and with them the proposer's answer, stay as they are, and so do Invalid outcomes.
    """
    pairs = list(zip(group.trajectories, group.outcomes, strict=True))
    label = majority_answer(trajectory.answer for trajectory, outcome in pairs if isinstance(outcome, Scored))
    agrees = label is not None and any(
        normalise(label) in map(normalise, trajectory.question.golden_answers) for trajectory in group.trajectories
    )

    def scored(answer: str | None, outcome: Outcome) -> Outcome:
        if not isinstance(outcome, Scored):
            return outcome
        value = METRICS[metric](answer, [label]) if answer is not None and label is not None else 0.0
        parts = {**outcome.parts, metric: value, "label/agrees": float(agrees)}
        return Scored(outcome.reward - outcome.parts[metric] + value, parts)

    return replace(group, outcomes=tuple(scored(trajectory.answer, outcome) for trajectory, outcome in pairs))
