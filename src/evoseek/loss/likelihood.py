"""Losses of log-probabilities without a ratio: REINFORCE weighs them by advantages, cross-entropy by sample weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from evoseek.loss.base import Aggregate, Loss, LossInputs, PolicyLoss, Totals, aggregate_of, aggregate_tokens
from evoseek.loss.settings import ReinforceSettings
from evoseek.types import TrainingSample


def reinforce_loss(
    logprobs: torch.Tensor,
    advantages: torch.Tensor,
    loss_mask: torch.Tensor,
    *,
    aggregate: Aggregate = "sequence-sum",
    totals: Totals | None = None,
) -> Loss:
    """The plain policy gradient (Williams 1992), - aggregate of A_t logprob_t, of [B, T] tensors (advantages may be
    [B, 1]) over a bool mask [B, T].

    There is no ratio, so its gradient is right only for tokens of the current policy: one optimizer step per batch (for
    a sampler that differs from the learner, see `terms.importance_weights`). In that case the clipped loss has the same
    gradient, but uses a ratio to the sampler's record, whose rounding does not affect this loss. The default sums over
    a sequence's tokens, which is the gradient of the expected reward. The value of the loss says nothing about
    progress; look at the reward.

    `totals` counts the whole batch that this is a part of (default: this is all).
    """
    values = -torch.where(loss_mask, advantages, 0.0) * logprobs
    return Loss(loss=aggregate_tokens(values, loss_mask, aggregate, totals), metrics={})


@dataclass(frozen=True, slots=True)
class ReinforceLoss(PolicyLoss):
    """`reinforce_loss` as a LossFn. A sample's weight multiplies its advantages."""

    aggregate: Aggregate = "sequence-sum"

    Settings = ReinforceSettings

    @classmethod
    def build(cls, settings: ReinforceSettings, context: object) -> ReinforceLoss:
        """From settings."""
        return cls(aggregate_of(settings.aggregate))

    def __call__(self, inputs: LossInputs, totals: Totals) -> Loss:
        """The micro-batch's share of the loss."""
        return reinforce_loss(
            inputs.logprobs,
            inputs.weighted_advantages,
            inputs.loss_mask,
            aggregate=self.aggregate,
            totals=totals,
        )


@dataclass(frozen=True, slots=True)
class CrossEntropyLoss:
    """Supervised learning on demonstrations: the mean of -logprob over the masked tokens, times the sample's weight.

    It uses neither advantages nor rollout logprobs."""

    aggregate: Aggregate = "token-mean"

    def contributes(self, sample: TrainingSample) -> bool:
        """False for weight 0."""
        return sample.weight != 0.0

    def __call__(self, inputs: LossInputs, totals: Totals) -> Loss:
        """The micro-batch's share of the loss."""
        values = -inputs.logprobs * inputs.weights.unsqueeze(-1)
        return Loss(loss=aggregate_tokens(values, inputs.loss_mask, self.aggregate, totals), metrics={})
