"""Losses of log-probabilities without a ratio: REINFORCE weighs them by advantages, cross-entropy by sample weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from evoseek.loss.base import Aggregate, Loss, LossInputs, PolicyLoss, Totals, aggregate_of, aggregate_tokens
from evoseek.loss.settings import ReinforceSettings
from evoseek.types import TrainingSample


@dataclass(frozen=True, slots=True)
class ReinforceLoss(PolicyLoss):
    """The plain policy gradient (Williams 1992), - aggregate of A_t logprob_t. A sample's weight multiplies its
    advantages.

    There is no ratio, so its gradient is right only for tokens of the current policy: one optimizer step per batch (for
    a sampler that differs from the learner, see `terms.importance_weights`). In that case the clipped loss has the same
    gradient, but uses a ratio to the sampler's record, whose rounding does not affect this loss. The default sums over
    a sequence's tokens, which is the gradient of the expected reward. The value of the loss says nothing about
    progress; look at the reward.
    """

    aggregate: Aggregate = "sequence-sum"

    Settings = ReinforceSettings

    @classmethod
    def build(cls, settings: ReinforceSettings, context: object) -> ReinforceLoss:
        """From settings."""
        return cls(aggregate_of(settings.aggregate))

    def __call__(self, inputs: LossInputs, totals: Totals) -> Loss:
        """The micro-batch's share of the loss."""
        values = -torch.where(inputs.loss_mask, inputs.weighted_advantages, 0.0) * inputs.logprobs
        return Loss(aggregate_tokens(values, inputs.loss_mask, self.aggregate, totals), metrics={})


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
