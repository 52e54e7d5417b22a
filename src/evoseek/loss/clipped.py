"""The clipped surrogate of PPO (arXiv 1707.06347, eq. 7), with one ratio per token or one per sequence.

    r_t  = exp(logprob_t - old_logprob_t)                                    `ClippedLoss`: PPO, GRPO, DAPO
    loss = - aggregate of min(r_t A_t, clip(r_t, 1 - clip_low, 1 + clip_high) A_t)

    s_i  = exp(mean over the action tokens of (logprob - old_logprob))       `SequenceLoss`: GSPO (arXiv 2507.18071,
    loss = - mean over sequences of min(s_i A_i,                             eq. 5-7), DSPO (arXiv 2510.09255, eq. 6
             clip(s_i, 1 - clip_low, 1 + clip_high) A_i)                     and 11)

With clip_low = clip_high, `ClippedLoss` is PPO's and GRPO's; clip_high > clip_low is DAPO's "clip higher". There is no
dual clip: a token with a very large ratio and a negative advantage keeps its full gradient. This can fail if the
sampler's policy is far from the learner's.

The reward belongs to the whole sequence, so `SequenceLoss` computes ratio and clip for whole sequences. Observation
tokens are in neither the mean nor the gradient. Means of many tokens are near 1, so the clip is far tighter than for
token ratios (3e-4 and 4e-4 in the papers). It fails if learner and sampler differ by more than that before the first
step: nearly every sequence is then clipped, which `clip_ratio/region_mean` shows.

The metrics, named as in TRL, are shares of tokens (or sequences) whose gradient was cut off by the clip:
`clip_ratio/low_mean`, `/high_mean` and `/region_mean` (either). A sample's weight multiplies its advantages.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from evoseek.loss.base import Aggregate, Loss, LossInputs, PolicyLoss, Totals, aggregate_tokens
from evoseek.loss.settings import ClippedSettings, SequenceSettings

_EPS = 1e-8  # in every mean over tokens of the reference implementation (verl); kept, to reproduce it to 1e-9


def token_ratio(logprobs: torch.Tensor, old_logprobs: torch.Tensor, loss_mask: torch.Tensor) -> torch.Tensor:
    """Return exp(logprobs - old_logprobs) on the mask, exactly 1 (no gradient) off it: [B, T] -> [B, T].

    The difference is masked before the exponential, so that arbitrary values off the mask can neither overflow nor
    send a NaN back through the gradient.
    """
    return (logprobs - old_logprobs).masked_fill(~loss_mask, 0.0).exp()


def sequence_ratio(logprobs: torch.Tensor, old_logprobs: torch.Tensor, loss_mask: torch.Tensor) -> torch.Tensor:
    """Return exp(mean of logprobs - old_logprobs over the masked tokens), the geometric mean of the tokens' ratios.

    [B, T] -> [B] (GSPO, arXiv 2507.18071, eq. 7). As a mean, it stays in range for any length of sequence. A sequence
    without a masked token has the ratio 1, without gradient.
    """
    difference = (logprobs - old_logprobs).masked_fill(~loss_mask, 0.0)
    return (difference.sum(dim=-1) / loss_mask.sum(dim=-1).clamp(min=1)).exp()


@dataclass(frozen=True, slots=True)
class ClippedLoss(PolicyLoss):
    """The clipped loss of token ratios."""

    Settings = ClippedSettings
    clip_low: float = Settings().clip_low
    clip_high: float = Settings().clip_high
    aggregate: Aggregate = Settings().aggregate

    @classmethod
    def build(cls, settings: ClippedSettings, context: object) -> ClippedLoss:
        return cls(settings.clip_low, settings.clip_high, settings.aggregate)

    def __call__(self, inputs: LossInputs, totals: Totals) -> Loss:
        ratio = token_ratio(inputs.logprobs, inputs.old_logprobs, inputs.loss_mask)
        objective, low, high = _clipped(ratio, inputs.weighted_advantages, self.clip_low, self.clip_high)

        def share(chosen: torch.Tensor) -> torch.Tensor:
            return aggregate_tokens(chosen.to(ratio.dtype), inputs.loss_mask, "token-mean", totals)

        loss = -aggregate_tokens(objective, inputs.loss_mask, self.aggregate, totals)
        return Loss(loss, _metrics(share(low), share(high), share(low | high)))


@dataclass(frozen=True, slots=True)
class SequenceLoss(PolicyLoss):
    """The clipped loss of sequence ratios. A sequence's advantage is the mean over its action tokens."""

    level = "sequence"
    Settings = SequenceSettings
    clip_low: float = Settings().clip_low
    clip_high: float = Settings().clip_high

    @classmethod
    def build(cls, settings: SequenceSettings, context: object) -> SequenceLoss:
        return cls(settings.clip_low, settings.clip_high)

    def __call__(self, inputs: LossInputs, totals: Totals) -> Loss:
        mask, sequences = inputs.loss_mask, max(totals.sequences, 1)
        ratio = sequence_ratio(inputs.logprobs, inputs.old_logprobs, mask)
        lengths = mask.sum(dim=-1).to(ratio.dtype)
        advantage = torch.where(mask, inputs.weighted_advantages, 0.0).sum(dim=-1) / (lengths + _EPS)
        objective, low, high = _clipped(ratio, advantage, self.clip_low, self.clip_high)
        shares = (chosen.sum() / sequences for chosen in (low, high, low | high))
        return Loss(-objective.sum() / sequences, _metrics(*shares))


def _clipped(
    ratio: torch.Tensor, advantage: torch.Tensor, low: float, high: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the objective, and masks of where its gradient is cut off below and above."""
    objective = torch.minimum(ratio * advantage, ratio.clamp(1.0 - low, 1.0 + high) * advantage)
    return objective, (ratio < 1.0 - low) & (advantage < 0), (ratio > 1.0 + high) & (advantage > 0)


def _metrics(low: torch.Tensor, high: torch.Tensor, either: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"clip_ratio/low_mean": low, "clip_ratio/high_mean": high, "clip_ratio/region_mean": either}
