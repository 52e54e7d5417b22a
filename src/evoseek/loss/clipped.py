"""The clipped surrogate of PPO (arXiv 1707.06347, eq. 7), as GRPO and DAPO use it, one ratio per token.

    r_t = exp(logprob_t - old_logprob_t)
    loss = - aggregate of min(r_t A_t, clip(r_t, 1 - clip_low, 1 + clip_high) A_t)

With clip_low = clip_high it is PPO's and GRPO's; clip_high > clip_low is DAPO's "clip higher". There is no dual clip:
a token with a very large ratio and a negative advantage keeps its full gradient, which is where it can fail when the
sampler's policy is far from the learner's.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from evoseek.loss.base import Aggregate, Loss, LossInputs, PolicyLoss, Totals, aggregate_of, aggregate_tokens
from evoseek.loss.settings import ClippedSettings


def token_ratio(logprobs: torch.Tensor, rollout_logprobs: torch.Tensor, loss_mask: torch.Tensor) -> torch.Tensor:
    """exp(logprobs - rollout_logprobs) on the mask, exactly 1 (without gradient) off it: [B, T] -> [B, T].

    The difference is masked before the exponential, so that arbitrary values off the mask can neither overflow nor
    send a NaN back through the gradient.
    """
    return (logprobs - rollout_logprobs).masked_fill(~loss_mask, 0.0).exp()


def clipped_loss(
    logprobs: torch.Tensor,
    rollout_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    loss_mask: torch.Tensor,
    *,
    clip_low: float,
    clip_high: float,
    aggregate: Aggregate = "token-mean",
    totals: Totals | None = None,
) -> Loss:
    """Clipped policy loss of [B, T] tensors (advantages may be [B, 1]) over a bool mask [B, T].

    `totals` counts the whole batch that this is a part of (default: this is all). The metrics, named as in TRL, are
    shares of tokens whose gradient the clip cut off: `clip_ratio/low_mean`, `/high_mean` and `/region_mean` (either).
    """
    ratio = token_ratio(logprobs, rollout_logprobs, loss_mask)
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    objective = torch.minimum(ratio * advantages, clipped * advantages)
    low = (ratio < 1.0 - clip_low) & (advantages < 0)
    high = (ratio > 1.0 + clip_high) & (advantages > 0)

    def share(chosen: torch.Tensor) -> torch.Tensor:
        return aggregate_tokens(chosen.to(logprobs.dtype), loss_mask, "token-mean", totals)

    return Loss(
        loss=-aggregate_tokens(objective, loss_mask, aggregate, totals),
        metrics={
            "clip_ratio/low_mean": share(low),
            "clip_ratio/high_mean": share(high),
            "clip_ratio/region_mean": share(low | high),
        },
    )


@dataclass(frozen=True, slots=True)
class ClippedLoss(PolicyLoss):
    """`clipped_loss` as a LossFn, with the ratio to `old_logprobs`. A sample's weight multiplies its advantages."""

    clip_low: float = 0.2
    clip_high: float = 0.2
    aggregate: Aggregate = "token-mean"

    Settings = ClippedSettings

    @classmethod
    def build(cls, settings: ClippedSettings, context: object) -> ClippedLoss:
        """From settings."""
        return cls(settings.clip_low, settings.clip_high, aggregate_of(settings.aggregate))

    def __call__(self, inputs: LossInputs, totals: Totals) -> Loss:
        """The micro-batch's share of the loss."""
        return clipped_loss(
            inputs.logprobs,
            inputs.old_logprobs,
            inputs.weighted_advantages,
            inputs.loss_mask,
            clip_low=self.clip_low,
            clip_high=self.clip_high,
            aggregate=self.aggregate,
            totals=totals,
        )
