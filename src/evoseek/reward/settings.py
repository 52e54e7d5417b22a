"""Settings that every reward has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field, SerializeAsAny

from evoseek.settings import Chosen, Count, PartSettings


class RewardSettings(PartSettings):
    """The reward of an answer."""

    training_only: ClassVar[tuple[str, ...]] = ("overlong_max", "overlong_cache", "unanswered_penalty")
    name: str = Field(
        default="exact_match", description="Name of the reward, or package.module:Name of one of your own."
    )
    overlong_max: Count | None = Field(
        default=None,
        description="Number of a rollout's own tokens at which DAPO's overlong penalty, added to the reward in "
        "training, reaches -1. Default: no penalty.",
    )
    overlong_cache: Count | None = Field(
        default=None, description="Number of tokens below reward.overlong_max over which that penalty grows from 0."
    )
    unanswered_penalty: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="What a rollout that ends without an answer loses in training. Above 0, a wrong answer is better "
        "than none.",
    )

    def problems(self) -> Iterator[str]:
        """The penalty has two numbers."""
        longest, cache = self.overlong_max, self.overlong_cache
        if (longest is None) != (cache is None):
            yield (
                f"reward.overlong_max is {longest or 'not set'} and reward.overlong_cache {cache or 'not set'}, but "
                "the penalty for overlong rollouts needs both. Set both, or leave both out."
            )
        if longest is not None and cache is not None and cache > longest:
            yield (
                f"reward.overlong_cache is {cache}, more than reward.overlong_max, {longest}: every rollout would be "
                "overlong. Set reward.overlong_cache to a part of it, such as a fifth."
            )


RewardPart = Annotated[SerializeAsAny[RewardSettings], Chosen("reward", RewardSettings)]
