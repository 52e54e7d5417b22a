"""Settings that every loss has, and settings of the terms added to any loss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, SerializeAsAny

from evoseek.config.sections import Chosen, Count, Needs, PartSettings, Section

AggregateSetting = Literal["token-mean", "sequence-mean-token-mean", "sequence-sum"] | Count


class LossSettings(PartSettings):
    """The loss that the learner differentiates."""

    in_stage = "*"
    name: str = Field(default="clipped", description="Loss: a built-in name, or package.module:Name.")


class ClippedSettings(LossSettings):
    """Settings of `clipped`: the clipped surrogate of token ratios."""

    clip_low: float = Field(default=0.2, gt=0, le=1, description="Distance below 1 beyond which the ratio is clipped.")
    clip_high: float = Field(
        default=0.2, gt=0, le=100, description="Distance above 1 beyond which the ratio is clipped."
    )
    aggregate: AggregateSetting = Field(
        default="token-mean",
        description="How token values are aggregated; a number is a constant length that divides the sums (Dr. GRPO).",
    )


class SequenceSettings(LossSettings):
    """Settings of `sequence`: the clipped surrogate of sequence ratios."""

    clip_low: float = Field(
        default=3e-4, gt=0, le=1, description="Distance below 1 beyond which a sequence's ratio is clipped."
    )
    clip_high: float = Field(
        default=4e-4, gt=0, le=100, description="Distance above 1 beyond which a sequence's ratio is clipped."
    )


class ReinforceSettings(LossSettings):
    """Settings of `reinforce`: the plain policy gradient."""

    aggregate: AggregateSetting = Field(
        default="sequence-sum",
        description="How token values are aggregated; a number is a constant length that divides the sums (Dr. GRPO).",
    )


class AlgorithmSettings(Section):
    """How training uses a batch of rollouts with any loss: optimizer steps, KL, entropy, importance weights."""

    in_stage = "*"
    mini_batches: int = Field(
        default=1, ge=1, le=1000, description="Number of optimizer steps on every batch of rollouts."
    )
    kl_coefficient: float = Field(
        default=0.0, ge=0, le=100, description="Coefficient of the KL divergence to the initial policy."
    )
    kl_in: Literal["loss", "reward"] = Field(
        default="loss",
        description="Whether the KL is added to the loss (estimator k3) or subtracted from the reward (k1).",
    )
    entropy_coefficient: float = Field(default=0.0, ge=0, le=100, description="Coefficient of the entropy bonus.")
    importance: Literal["none", "truncate", "mask"] = Field(
        default="none",
        description="How importance weights correct for differences between sampler and learner: not "
        "at all, truncated above 2, or masked outside 1/2 to 2. With rollout.max_staleness above 0 they are "
        "truncated by default.",
    )
    mask_observations: bool = Field(
        default=True, description="Whether tool results are masked in the loss; false is an ablation."
    )

    @classmethod
    def effects(cls) -> tuple[Needs, ...]:
        return (Needs("kl_in", "kl_coefficient"),)

    def problems(self) -> Iterator[str]:
        if not self.mask_observations and self.kl_in == "reward" and self.kl_coefficient > 0:
            yield (
                "algorithm.mask_observations is false and algorithm.kl_in is reward, but the sampler knows no logprobs "
                "of tool results to take a KL from. Set algorithm.kl_in to loss, or mask the observations."
            )


LossPart = Annotated[SerializeAsAny[LossSettings], Chosen("loss", LossSettings)]
