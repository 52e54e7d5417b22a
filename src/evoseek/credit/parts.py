"""The credit functions as parts: each with its settings, called with rewards and group keys that run in parallel.

None among the rewards is an Invalid member: it stays None, and is in no statistic. `is_relative` says that equal
rewards in a group give no signal; `needs_critic` says that values are needed for every token, so the part is not called
with rewards alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field, SerializeAsAny

from evoseek.credit.advantages import (
    gae,
    group_advantages,
    leave_one_out_advantages,
    raw_advantages,
    whitened_advantages,
)
from evoseek.settings import Chosen, PartSettings


class CreditSettings(PartSettings):
    """From rewards to advantages."""

    staged: ClassVar[tuple[str, ...]] = ("*",)
    name: str = Field(default="group", description="Name of the credit, or package.module:Name of one of your own.")


CreditPart = Annotated[SerializeAsAny[CreditSettings], Chosen("credit", CreditSettings)]


Rewards = Sequence[float | None]
Groups = Sequence[Hashable]


@dataclass(frozen=True, slots=True)
class GroupCredit:
    """GRPO, Dr. GRPO and HRPO: relative to the group mean; see `group_advantages`."""

    scale: Literal["std", "none"] = "std"
    singleton: Literal["raw", "zero", "drop"] = "zero"
    is_relative: ClassVar[bool] = True

    class Settings(CreditSettings):
        """Settings of group-relative credit."""

        scale: Literal["std", "none"] = Field(
            default="std", description="Whether advantages are divided by the group's standard deviation."
        )
        singleton: Literal["raw", "zero", "drop"] = Field(
            default="zero",
            description="Advantage in a group of one: the reward (raw), 0 (zero), or no advantage, so "
            "that the rollout is left out (drop).",
        )

    @classmethod
    def build(cls, settings: Settings, context: object) -> GroupCredit:
        """From settings."""
        return cls(settings.scale, settings.singleton)

    def __call__(self, rewards: Rewards, groups: Groups) -> list[float | None]:
        """Advantages."""
        return group_advantages(rewards, groups, scale=self.scale, singleton=self.singleton)


class LeaveOneOutCredit:
    """RLOO: relative to the mean of the group's other members."""

    is_relative = True

    def __call__(self, rewards: Rewards, groups: Groups) -> list[float | None]:
        """Advantages."""
        return leave_one_out_advantages(rewards, groups)


class WhitenedCredit:
    """REINFORCE++: whitened over the batch."""

    def __call__(self, rewards: Rewards, groups: Groups) -> list[float | None]:
        """Advantages."""
        return whitened_advantages(rewards)


class RawCredit:
    """REINFORCE: the reward itself."""

    def __call__(self, rewards: Rewards, groups: Groups) -> list[float | None]:
        """Advantages."""
        return raw_advantages(rewards)


@dataclass(frozen=True, slots=True)
class CriticCredit:
    """PPO: generalised advantage estimation with a critic."""

    gamma: float = 1.0
    lam: float = 1.0
    needs_critic: ClassVar[bool] = True

    class Settings(CreditSettings):
        """Settings of advantage estimation."""

        gamma: float = Field(default=1.0, gt=0, le=1, description="Discount of rewards, per token.")
        lam: float = Field(
            default=1.0, ge=0, le=1, description="Lambda of GAE: 1 uses the rewards as observed, 0 trusts the critic."
        )

    @classmethod
    def build(cls, settings: Settings, context: object) -> CriticCredit:
        """From settings."""
        return cls(settings.gamma, settings.lam)

    def __call__(self, rewards: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
        """Advantages and returns of one trajectory's action tokens."""
        return gae(rewards, values, gamma=self.gamma, lam=self.lam)
