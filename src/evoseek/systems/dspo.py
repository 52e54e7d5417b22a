"""DSPO (arXiv 2510.09255): sequence-level policy optimisation on groups that are filtered for a signal.

    for step = 1 .. steps:
        until `questions_per_step` groups are kept, or `limit` times as many were rolled out:
            draw as many questions as groups are missing; G rollouts of each
            keep the groups with 0 < successes < G
        advantage = (reward - mean of its group) / (std of its group + eps)
        loss = - mean over sequences of min(s A, clip(s, 1 - eps_low, 1 + eps_high) A),
               s = exp(mean over the sequence's action tokens of logprob - old_logprob)

Groups with equal rewards have advantages of 0, so the batch would be smaller than it looks. The refill is bounded: if
the policy solves everything or nothing, no number of draws would fill the batch.

Without the filter it is GSPO (Search-R1 with this loss), without the sequence ratio DAPO (this with the clipped loss).
If the policy gets nearly everything right or wrong, a step costs up to `limit` times the rollouts and still trains on
few groups (`rollout/filter/kept` counts them); it never waits for more.

Questions that a step could have drawn, but did not need, come first in the next step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from pydantic import Field

from evoseek.assembly.settings import RunSettings
from evoseek.config.registry import find
from evoseek.config.sections import Section, part
from evoseek.credit import needs_critic
from evoseek.loss.settings import AlgorithmSettings, LossPart
from evoseek.reward.functions import RewardPart
from evoseek.reward.shaping import unshaped
from evoseek.systems.search_r1 import Rollouts, SearchR1
from evoseek.types import Scored, TrajectoryGroup

if TYPE_CHECKING:
    from evoseek.training.plan import TrainingContext, TrainingPlan


class Signal(StrEnum):
    """The comparison of a group's valid rewards. Only `MIXED` gives a learning signal."""

    MIXED = "mixed"  # they differ
    ALL_RIGHT = "all_right"  # all equal, at least 1
    ALL_WRONG = "all_wrong"  # all equal, less than 1
    TOO_FEW_VALID = "too_few_valid"  # fewer than two: nothing to compare


def group_signal(rewards: Sequence[float | None]) -> Signal:
    """Return whether a group has a signal, and if not, why. None is an Invalid member, not a wrong answer.

    For rewards of 0 and 1, MIXED is eq. 9 over the valid members; for graded rewards it means unequal rewards.
    """
    valid = [reward for reward in rewards if reward is not None]
    if len(valid) < 2:
        return Signal.TOO_FEW_VALID
    if min(valid) != max(valid):
        return Signal.MIXED
    return Signal.ALL_RIGHT if valid[0] >= 1 else Signal.ALL_WRONG


def filter_metrics(signals: Sequence[Signal], wanted: int) -> dict[str, float]:
    """Return the numbers of groups: drawn, kept, missing of `wanted`, and without a signal by reason.

    `rollout/filter/frac_reward_zero_std` is the share of equal rewards among groups with two or more valid members:
    TRL's frac_reward_zero_std, before the filter. It is left out if no group had two.
    """
    counts = Counter(signals)
    compared = len(signals) - counts[Signal.TOO_FEW_VALID]
    metrics = {
        "drawn": float(len(signals)),
        "kept": float(counts[Signal.MIXED]),
        "missing": float(wanted - counts[Signal.MIXED]),
        **{str(signal): float(counts[signal]) for signal in Signal if signal is not Signal.MIXED},
    }
    if compared:
        metrics["frac_reward_zero_std"] = (compared - counts[Signal.MIXED]) / compared
    return {f"rollout/filter/{name}": value for name, value in metrics.items()}


class SelectionSettings(Section):
    """The limit of groups that a step draws to find groups with a signal."""

    in_stage = "limit"
    limit: int = Field(
        default=4,
        ge=1,
        le=100,
        description="Maximum number of questions that a step draws, as a multiple of questions.per_step.",
    )


@dataclass(frozen=True, slots=True)
class DSPO(SearchR1):
    """DSPO (arXiv 2510.09255): sequence-level policy optimisation on groups that are filtered for a signal.

    A step draws at most `limit` x `questions_per_step` questions, or all if there are fewer.
    """

    limit: int = 4

    class Settings(SearchR1.Settings):
        """Settings of DSPO."""

        has_critic = False  # a critic must see every group
        run: RunSettings = RunSettings(system="dspo")
        reward: RewardPart = part("guarded_substring_match")
        loss: LossPart = part("sequence", clip_low=3e-4, clip_high=4e-4)
        algorithm: AlgorithmSettings = AlgorithmSettings(mini_batches=4)
        dspo: SelectionSettings = SelectionSettings()

        def problems(self) -> Iterator[str]:
            yield from super().problems()
            if needs_critic(find("credit", self.credit.name)):
                yield (
                    f"credit.name is {self.credit.name}, but dspo keeps only groups whose rewards differ, and a critic "
                    "must see all. Train search-r1, or set credit.name to group."
                )

    @classmethod
    def build(cls, settings: Settings, context: TrainingContext) -> TrainingPlan:  # pyright: ignore[reportIncompatibleMethodOverride]
        return cls.plan(settings, context, context.searched, limit=settings.dspo.limit)

    async def collect(self, step: int) -> Rollouts:
        """Collect rounds of rollouts until enough groups have a signal. The questions and their order are determined
        before the first round."""
        size = min(self.limit * self.questions_per_step, self.order.most(self.questions))
        pool = self.draw(step, size)
        wanted, groups, signals = self.questions_per_step, list[TrajectoryGroup](), list[Signal]()
        while missing := min(wanted - signals.count(Signal.MIXED), size - len(groups)):
            new = await self.rollouts(pool[len(groups) : len(groups) + missing], step)
            groups += new
            signals += [group_signal(_rewards(group)) for group in new]
        kept = [group for group, signal in zip(groups, signals, strict=True) if signal is Signal.MIXED]
        return Rollouts(groups, kept, filter_metrics(signals, wanted))


def _rewards(group: TrajectoryGroup) -> list[float | None]:
    return [unshaped(outcome) if isinstance(outcome, Scored) else None for outcome in group.outcomes]
