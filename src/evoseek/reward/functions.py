"""Reward functions made of answer metrics."""

from __future__ import annotations

from evoseek.errors import ConfigError
from evoseek.reward.answer import METRICS
from evoseek.types import Outcome, Scored, Trajectory


class AnswerReward:
    """A RewardFn: one metric of the trajectory's answer against its question's golden answers.

    Only `trajectory.answer` is read, never prompt or tool text; a trajectory without an answer scores 0. Where a paper
    rewards subEM, use "guarded_substring_match". Raises ConfigError for an unknown metric.
    """

    def __init__(self, metric: str = "exact_match") -> None:
        if metric not in METRICS:
            raise ConfigError(f"Unknown reward metric {metric!r}; expected one of: {', '.join(METRICS)}.")
        self.metric = metric

    async def __call__(self, trajectory: Trajectory) -> Outcome:
        """Score one trajectory."""
        answer = trajectory.answer
        value = 0.0 if answer is None else METRICS[self.metric](answer, trajectory.question.golden_answers)
        return Scored(value, {self.metric: value})
