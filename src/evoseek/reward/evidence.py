"""Evidence reward: a solver is also rewarded for finding the passages from which the question was made.

    reward = base + weight * |evidence found| / |evidence|

In self-play the proposer's path is known at no cost. A reward for following it tells which search of a failed rollout
was right, while the answer alone tells only that something was wrong. It fails if the evidence does not fit the
question: it then rewards searching for it instead of answering.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

from evoseek.protocols import RewardFn
from evoseek.types import Invalid, Outcome, Question, Scored, Trajectory


class EvidenceReward:
    """A RewardFn around another: adds `weight` times the part `evidence`, the share in [0, 1] that any of the
    trajectory's searches found of the passages whose ids are in the question's metadata as `evidence`.

    Questions without evidence, and Invalid outcomes, stay as they are.
    """

    def __init__(self, base: RewardFn, weight: float) -> None:
        self._base, self._weight = base, weight

    async def __call__(self, trajectory: Trajectory) -> Outcome:
        """Score one trajectory."""
        outcome, wanted = await self._base(trajectory), _evidence(trajectory.question)
        if isinstance(outcome, Invalid) or not wanted:
            return outcome
        found = {passage.id for result in trajectory.tool_results for passage in result.passages}
        share = len(wanted & found) / len(wanted)
        return Scored(outcome.reward + self._weight * share, {**outcome.parts, "evidence": share})


def _evidence(question: Question) -> set[str]:
    return set(cast(Collection[str], question.metadata.get("evidence", ())))
