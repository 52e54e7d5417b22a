"""GSPO (arXiv 2507.18071, eq. 5-7) and DSPO (arXiv 2510.09255, eq. 6 and 11): one ratio per sequence.

    s_i  = exp(mean over the action tokens of (logprob - old_logprob))
    loss = - mean over sequences of min(s_i A_i, clip(s_i, 1 - clip_low, 1 + clip_high) A_i)

The reward belongs to the whole sequence, so the ratio and the clip do too: a sequence is in or out as one. Observation
tokens are in neither the mean nor the gradient. Means of many tokens lie near 1, so the clip is far tighter than for
token ratios (3e-4 and 4e-4 in the papers). It fails when learner and sampler disagree by more than that already before
the first step: nearly every sequence is then clipped, which `clip_ratio/region_mean` shows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from evoseek.loss.base import Loss, LossInputs, PolicyLoss, Totals, count_totals
from evoseek.loss.settings import SequenceSettings

_EPS = 1e-8  # in every mean over tokens of the reference implementation (verl); kept, to give its numbers to 1e-9


def sequence_ratio(logprobs: torch.Tensor, rollout_logprobs: torch.Tensor, loss_mask: torch.Tensor) -> torch.Tensor:
    """exp(mean over the masked tokens of logprobs - rollout_logprobs), the geometric mean of the tokens' ratios.

    [B, T] -> [B] (GSPO, arXiv 2507.18071, eq. 7). Being a mean, it stays in range however long the sequence is. A
    sequence without any masked token has the ratio 1, without gradient.
    """
    difference = (logprobs - rollout_logprobs).masked_fill(~loss_mask, 0.0)
    return (difference.sum(dim=-1) / loss_mask.sum(dim=-1).clamp(min=1)).exp()


def sequence_loss(
    logprobs: torch.Tensor,
    rollout_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    loss_mask: torch.Tensor,
    *,
    clip_low: float,
    clip_high: float,
    totals: Totals | None = None,
) -> Loss:
    """Clipped policy loss of sequences, from [B, T] tensors (advantages may be [B, 1]) and a bool mask [B, T].

    A sequence's advantage is the mean over its action tokens. `totals` counts the whole batch that this is a part of
    (default: this is all). The metrics, named as in TRL, are shares of sequences whose gradient the clip cut off:
    `clip_ratio/low_mean`, `/high_mean` and `/region_mean` (either).
    """
    sequences = max((totals or count_totals(loss_mask)).sequences, 1)
    ratio = sequence_ratio(logprobs, rollout_logprobs, loss_mask)
    lengths = loss_mask.sum(dim=-1).to(logprobs.dtype)
    advantage = torch.where(loss_mask, advantages, 0.0).sum(dim=-1) / (lengths + _EPS)
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    objective = torch.minimum(ratio * advantage, clipped * advantage)
    low = (ratio < 1.0 - clip_low) & (advantage < 0)
    high = (ratio > 1.0 + clip_high) & (advantage > 0)
    return Loss(
        loss=-objective.sum() / sequences,
        metrics={
            "clip_ratio/low_mean": low.sum() / sequences,
            "clip_ratio/high_mean": high.sum() / sequences,
            "clip_ratio/region_mean": (low | high).sum() / sequences,
        },
    )


@dataclass(frozen=True, slots=True)
class SequenceLoss(PolicyLoss):
    """`sequence_loss` as a LossFn, with the ratio to `old_logprobs`. A sample's weight multiplies its advantage."""

    level = "sequence"
    clip_low: float = 3e-4
    clip_high: float = 4e-4

    Settings = SequenceSettings

    @classmethod
    def build(cls, settings: SequenceSettings, context: object) -> SequenceLoss:
        """From settings."""
        return cls(settings.clip_low, settings.clip_high)

    def __call__(self, inputs: LossInputs, totals: Totals) -> Loss:
        """The micro-batch's share of the loss."""
        return sequence_loss(
            inputs.logprobs,
            inputs.old_logprobs,
            inputs.weighted_advantages,
            inputs.loss_mask,
            clip_low=self.clip_low,
            clip_high=self.clip_high,
            totals=totals,
        )
