"""A penalty for rollouts that end without an answer, added to another reward in training.

Where the reward of a wrong answer is 0, a rollout that searches until it is cut off earns as much as one that answers
wrongly, and a policy that learns to search more may forget to answer. (Search-R1's authors found a reward of the format
of the same use, arXiv 2505.15117, section 3.1.)
"""

from __future__ import annotations

from dataclasses import dataclass

from evoseek.protocols import RewardFn
from evoseek.reward.shaping import shaped
from evoseek.types import Outcome, Scored, Trajectory


@dataclass(frozen=True, slots=True)
class UnansweredReward:
    """Another RewardFn less `penalty` for a trajectory without an answer; it is the part `unanswered`."""

    reward: RewardFn
    penalty: float

    async def __call__(self, trajectory: Trajectory) -> Outcome:
        """Score one trajectory. What the other reward cannot score stays Invalid."""
        outcome = await self.reward(trajectory)
        if not isinstance(outcome, Scored):
            return outcome
        return shaped(outcome, "unanswered", -self.penalty if trajectory.answer is None else 0.0)
