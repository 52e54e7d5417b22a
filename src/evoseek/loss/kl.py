"""The distance of the policy from a reference policy: estimates of KL(policy || reference) from the policy's own
tokens.

    k1 = logprob - ref_logprob                   unbiased, noisy, often negative
    k3 = exp(d) - d - 1, d = ref_logprob - logprob    unbiased, less noisy, never negative

(J. Schulman, http://joschu.net/blog/kl-approx.html; GRPO's penalty is k3, arXiv 2402.03300, eq. 4.) Use k1 in the
reward and k3 in the loss. Differentiated as a loss, k1 is worthless: its gradient is that of the logprobs, whose
expectation is 0. As a loss k3 pulls the policy back, though not exactly along the gradient of the KL; where the
reference gives a token a far higher probability than the policy, exp(d) makes one token outweigh all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from evoseek.errors import TrainingError
from evoseek.loss.aggregate import Aggregate, aggregate_tokens
from evoseek.loss.base import Loss, LossFn, LossInputs, Totals
from evoseek.types import TrainingSample


def kl_k1(logprobs: torch.Tensor, ref_logprobs: torch.Tensor) -> torch.Tensor:
    """k1 of each token, [B, T]: what a reward subtracts."""
    return logprobs - ref_logprobs


def kl_k3(logprobs: torch.Tensor, ref_logprobs: torch.Tensor) -> torch.Tensor:
    """k3 of each token, [B, T]: what a loss adds."""
    difference = ref_logprobs - logprobs
    return difference.exp() - difference - 1.0


_ESTIMATORS = {"k1": kl_k1, "k3": kl_k3}


@dataclass(frozen=True, slots=True)
class WithKL:
    """Another LossFn plus `coefficient` times the KL to the reference policy, aggregated over the action tokens.

    A sample's weight multiplies its KL. The metric `kl` is the mean over tokens. Raises TrainingError if the samples
    carry no reference logprobs.
    """

    loss: LossFn[LossInputs]
    coefficient: float
    estimator: Literal["k1", "k3"] = "k3"
    aggregate: Aggregate = "token-mean"

    def contributes(self, sample: TrainingSample) -> bool:
        """False for weight 0: any other sample is pulled towards the reference, whatever its advantages."""
        return sample.weight != 0.0

    def __call__(self, inputs: LossInputs, totals: Totals) -> Loss:
        """The micro-batch's share of the loss."""
        if inputs.ref_logprobs is None:
            raise TrainingError(
                "The loss has a KL term, but not every sample has reference logprobs (ref_logprobs), which it is "
                "measured against. Compute them with a reference policy for all samples of the batch, or train without "
                "the KL term."
            )
        off = ~inputs.loss_mask
        kl = _ESTIMATORS[self.estimator](
            inputs.logprobs.masked_fill(off, 0.0), inputs.ref_logprobs.masked_fill(off, 0.0)
        )
        weighted = kl * inputs.weights.unsqueeze(-1)
        penalty = aggregate_tokens(weighted, inputs.loss_mask, self.aggregate, totals)
        inner = self.loss(inputs, totals)
        mean = aggregate_tokens(kl.detach(), inputs.loss_mask, "token-mean", totals)
        return Loss(loss=inner.loss + self.coefficient * penalty, metrics={**inner.metrics, "kl": mean})
