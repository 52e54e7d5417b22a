"""Supervised learning on demonstrations: the mean of -logprob over the masked tokens, times the sample's weight."""

from __future__ import annotations

from dataclasses import dataclass

from evoseek.loss.aggregate import Aggregate, aggregate_tokens
from evoseek.loss.base import Loss, LossInputs, Totals
from evoseek.types import TrainingSample


@dataclass(frozen=True, slots=True)
class CrossEntropyLoss:
    """A LossFn that looks at neither advantages nor rollout logprobs."""

    aggregate: Aggregate = "token-mean"

    def contributes(self, sample: TrainingSample) -> bool:
        """False for weight 0."""
        return sample.weight != 0.0

    def __call__(self, inputs: LossInputs, totals: Totals) -> Loss:
        """The micro-batch's share of the loss."""
        values = -inputs.logprobs * inputs.weights.unsqueeze(-1)
        return Loss(loss=aggregate_tokens(values, inputs.loss_mask, self.aggregate, totals), metrics={})
