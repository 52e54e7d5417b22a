"""The entropy bonus (A3C, arXiv 1602.01783, section 4): a reward for exploration.

    loss = another loss - coefficient * aggregate of the entropy of the policy at each action token

It counters a policy that collapses before it has found rewarding actions. Too large a coefficient makes the policy
random; in long answers it rewards tokens that do not matter.
"""

from __future__ import annotations

from dataclasses import dataclass

from evoseek.errors import TrainingError
from evoseek.loss.aggregate import Aggregate, aggregate_tokens
from evoseek.loss.base import Loss, LossFn, LossInputs, Totals
from evoseek.types import TrainingSample


@dataclass(frozen=True, slots=True)
class WithEntropy:
    """Another LossFn minus `coefficient` times the policy's entropy on the action tokens.

    A sample's weight multiplies its entropy. Raises TrainingError if the entropies carry no gradient: the bonus would
    appear in the loss but have no effect.
    """

    loss: LossFn[LossInputs]
    coefficient: float
    aggregate: Aggregate = "token-mean"

    def contributes(self, sample: TrainingSample) -> bool:
        """False for weight 0: any other sample has an entropy, whatever its advantages."""
        return sample.weight != 0.0

    def __call__(self, inputs: LossInputs, totals: Totals) -> Loss:
        """The micro-batch's share of the loss."""
        if inputs.logprobs.requires_grad and not inputs.entropies.requires_grad:
            raise TrainingError(
                "The loss has an entropy bonus, but the entropies were computed without a gradient, so that it would "
                "change nothing. Make the policy's forward pass with entropy_gradient=True, or train without the bonus."
            )
        entropies = inputs.entropies * inputs.weights.unsqueeze(-1)
        bonus = aggregate_tokens(entropies, inputs.loss_mask, self.aggregate, totals)
        inner = self.loss(inputs, totals)
        return Loss(loss=inner.loss - self.coefficient * bonus, metrics=inner.metrics)
