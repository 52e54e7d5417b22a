"""DAPO's soft overlong punishment (arXiv 2503.14476, eq. 13), added to another reward in training.

    |y| <= L_max - L_cache      0
    up to L_max                 ((L_max - L_cache) - |y|) / L_cache
    beyond                      -1

|y| is the number of tokens that the policy wrote in all turns; tool results do not count. So the policy learns that
a rollout approaches the limit before it is cut off there, and sound but truncated rollouts are distinguished from wrong
ones. It fails if longer rollouts are better and L_max is low.
"""

from __future__ import annotations

from dataclasses import dataclass

from evoseek.protocols import RewardFn
from evoseek.reward.shaping import shaped
from evoseek.types import Outcome, Scored, Trajectory


def overlong_penalty(length: int, *, longest: int, cache: int) -> float:
    """From 0 at `longest - cache` tokens down to -1 at `longest`."""
    return -min(1.0, max(0, length - (longest - cache)) / cache)


@dataclass(frozen=True, slots=True)
class OverlongReward:
    """Another RewardFn plus the penalty, which is the part `overlong`."""

    reward: RewardFn
    longest: int
    cache: int

    async def __call__(self, trajectory: Trajectory) -> Outcome:
        """Score one trajectory. What the other reward cannot score stays Invalid."""
        outcome = await self.reward(trajectory)
        if not isinstance(outcome, Scored):
            return outcome
        penalty = overlong_penalty(trajectory.num_action_tokens, longest=self.longest, cache=self.cache)
        return shaped(outcome, "overlong", penalty)
