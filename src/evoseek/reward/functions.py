"""Reward functions made of answer metrics."""

from __future__ import annotations

import math
from collections.abc import Callable
from inspect import isawaitable
from typing import Any

from evoseek.errors import ConfigError, EvoseekError, TrainingError
from evoseek.reward.answer import METRICS
from evoseek.reward.settings import RewardSettings
from evoseek.types import Invalid, Outcome, Scored, Trajectory


class AnswerReward:
    """A RewardFn: one metric of the trajectory's answer against its question's golden answers.

    Only `trajectory.answer` is read, never prompt or tool text; a trajectory without an answer scores 0. Where a paper
    rewards subEM, use "guarded_substring_match". Raises ConfigError for an unknown metric.
    """

    @classmethod
    def build(cls, settings: RewardSettings, context: object) -> AnswerReward:
        """By the name of the metric."""
        return cls(settings.name)

    def __init__(self, metric: str = "exact_match") -> None:
        if metric not in METRICS:
            raise ConfigError(f"Unknown reward metric {metric!r}; expected one of: {', '.join(METRICS)}.")
        self.metric = metric

    async def __call__(self, trajectory: Trajectory) -> Outcome:
        """Score one trajectory."""
        answer = trajectory.answer
        value = 0.0 if answer is None else METRICS[self.metric](answer, trajectory.question.golden_answers)
        return Scored(value, {self.metric: value})


class NamedReward:
    """A RewardFn from a user's function or object: its value is also the part `name` of the outcome.

    It may return an Outcome or a plain number, and may be a coroutine function.
    """

    def __init__(self, reward: Callable[[Trajectory], Any], name: str) -> None:
        self._reward, self._name = reward, name

    async def __call__(self, trajectory: Trajectory) -> Outcome:
        """Score one trajectory. Raises TrainingError for a value that is no finite number."""
        try:
            given = self._reward(trajectory)
            outcome: Any = await given if isawaitable(given) else given
        except EvoseekError:
            raise
        except (Exception, SystemExit) as error:
            raise TrainingError(
                f"The reward {self._name} failed for the rollout {trajectory.id}: {type(error).__name__}: {error}. "
                "Nothing was trained on. Correct the reward; where an outside service fails, it should raise ToolError."
            ) from error
        if isinstance(outcome, Invalid):
            return outcome
        value = outcome.reward if isinstance(outcome, Scored) else outcome
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise TrainingError(
                f"The reward {self._name} gave {outcome!r} for the rollout {trajectory.id}. Expected a finite number, "
                "or Scored or Invalid of evoseek.types."
            )
        parts = outcome.parts if isinstance(outcome, Scored) else {}
        return Scored(float(value), {self._name: float(value), **parts})
