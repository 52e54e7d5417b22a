"""Correction for a sampler whose probabilities differ from the learner's at the same weights.

    w_t = exp(old_logprob_t - rollout_logprob_t)            level "token"
    w   = exp(sum over the action tokens of the same)       level "sequence"

Fast samplers round differently, so training is off-policy even without a step in between. `old_logprobs` are the
learner's own before the batch's first step, and the weights multiply the advantages. Unbounded they have no useful
variance, so what lies outside [low, high] is

    "truncate"  clamped to the bound: truncated importance sampling (Yao et al., "Your Efficient RL Framework Secretly
                Brings You Off-Policy RL Training", https://fengyao.notion.site/off-policy-rl; low = 0, high = 2)
    "mask"      given weight 0: IcePop (arXiv 2510.18855) for tokens, with both bounds; masked importance sampling for
                sequences

Token weights are biased but have a low variance. The sequence weight is exact, but fails for long sequences, where
hardly any product of ratios is near 1. Loss terms that are no multiple of an advantage (KL, entropy) are not corrected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch

from evoseek.loss.aggregate import aggregate_tokens
from evoseek.loss.base import Loss, LossFn, LossInputs, Totals
from evoseek.types import TrainingSample

Level = Literal["token", "sequence"]
Outside = Literal["truncate", "mask"]


def importance_weights(
    old_logprobs: torch.Tensor,
    rollout_logprobs: torch.Tensor,
    loss_mask: torch.Tensor,
    *,
    level: Level,
    outside: Outside,
    low: float,
    high: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Detached weights [B, T], the same all along a sequence for level "sequence", and which ones were out of bounds.

    Equal logprobs give exactly 1, if low <= 1 <= high. The bounds are applied to the logarithm, so nothing overflows.
    """
    log_ratio = (old_logprobs - rollout_logprobs).detach().masked_fill(~loss_mask, 0.0)
    if level == "sequence":
        log_ratio = log_ratio.sum(dim=-1, keepdim=True).expand_as(log_ratio)
    log_low, log_high = math.log(low) if low > 0.0 else -math.inf, math.log(high)
    is_outside = (log_ratio < log_low) | (log_ratio > log_high)
    weights = log_ratio.clamp(log_low, log_high).exp()
    return weights.masked_fill(is_outside, 0.0) if outside == "mask" else weights, is_outside


@dataclass(frozen=True, slots=True)
class WithImportance:
    """Another LossFn whose advantages are multiplied by `importance_weights`; for `SequenceLoss` take level "sequence".

    The metrics are means over all tokens of the batch, where samples without a gradient count as uncorrected:
    `sampling/importance_sampling_ratio/deviation` of |weight - 1|, and `.../outside_frac`, the share out of bounds.
    """

    loss: LossFn[LossInputs]
    level: Level = "token"
    outside: Outside = "truncate"
    low: float = 0.0
    high: float = 2.0

    def contributes(self, sample: TrainingSample) -> bool:
        """As the other loss says."""
        return self.loss.contributes(sample)

    def __call__(self, inputs: LossInputs, totals: Totals) -> Loss:
        """The micro-batch's share of the loss."""
        weights, is_outside = importance_weights(
            inputs.old_logprobs,
            inputs.rollout_logprobs,
            inputs.loss_mask,
            level=self.level,
            outside=self.outside,
            low=self.low,
            high=self.high,
        )

        def mean(numbers: torch.Tensor) -> torch.Tensor:
            return aggregate_tokens(numbers.to(weights.dtype), inputs.loss_mask, "token-mean", totals)

        inner = self.loss(replace(inputs, advantages=inputs.advantages * weights), totals)
        corrections = {
            "sampling/importance_sampling_ratio/deviation": mean((weights - 1.0).abs()),
            "sampling/importance_sampling_ratio/outside_frac": mean(is_outside),
        }
        return Loss(loss=inner.loss, metrics={**inner.metrics, **corrections})
