"""Losses without a ratio: REINFORCE, cross-entropy, and the squared error of PPO's critic."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from evoseek.loss.base import Aggregate, Loss, LossInputs, PolicyLoss, Totals, ValueInputs, aggregate_tokens
from evoseek.loss.settings import ReinforceSettings
from evoseek.types import TrainingSample


@dataclass(frozen=True, slots=True)
class ReinforceLoss(PolicyLoss):
    """The plain policy gradient (Williams 1992), - aggregate of A_t logprob_t. A sample's weight multiplies its
    advantages.

    There is no ratio, so its gradient is right only for tokens of the current policy: one optimizer step per batch (for
    a sampler that differs from the learner, see `terms.importance_weights`). In that case the clipped loss has the same
    gradient, but its ratio is affected by the rounding of the sampler's record. The default sums over a sequence's
    tokens, which gives the gradient of the expected reward. The value of the loss does not measure progress; watch the
    reward.
    """

    Settings = ReinforceSettings
    aggregate: Aggregate = Settings().aggregate

    @classmethod
    def build(cls, settings: ReinforceSettings, context: object) -> ReinforceLoss:
        return cls(settings.aggregate)

    def __call__(self, inputs: LossInputs, totals: Totals) -> Loss:
        values = -torch.where(inputs.loss_mask, inputs.weighted_advantages, 0.0) * inputs.logprobs
        return Loss(aggregate_tokens(values, inputs.loss_mask, self.aggregate, totals), metrics={})


@dataclass(frozen=True, slots=True)
class CrossEntropyLoss:
    """Supervised learning on demonstrations: the mean of -logprob over the masked tokens, times the sample's weight.

    It uses neither advantages nor rollout logprobs."""

    aggregate: Aggregate = "token-mean"

    def contributes(self, sample: TrainingSample) -> bool:
        return sample.weight != 0.0

    def __call__(self, inputs: LossInputs, totals: Totals) -> Loss:
        values = -inputs.logprobs * inputs.weights.unsqueeze(-1)
        return Loss(loss=aggregate_tokens(values, inputs.loss_mask, self.aggregate, totals), metrics={})


@dataclass(frozen=True, slots=True)
class ValueLoss:
    """PPO's critic: squared error, clipped around the values before the batch's first step.

        clipped_t = V_t + clamp(v_t - V_t, -clip, clip)
        loss      = aggregate of 0.5 max((v_t - R_t)^2, (clipped_t - R_t)^2)

    v is the critic's prediction now, V its prediction when the batch was rolled out, R the return. The maximum removes
    the gradient of a token that has already moved by `clip` towards its return (the policy's clip, arXiv 1707.06347,
    applied to the critic, as in OpenAI baselines). If returns are large relative to `clip`, the critic learns slowly;
    `clip` = inf gives the plain squared error. A sample's weight multiplies its error.

    The metrics are means over tokens: `value/mean` of the predictions, `returns/mean`, `value/squared_error`
    (unclipped), and `value/clip_frac`, the share of tokens whose gradient the clip removed.
    """

    clip: float = 0.2
    aggregate: Aggregate = "token-mean"

    def contributes(self, sample: TrainingSample) -> bool:
        """Return False for a sample without returns, which has nothing to predict, and for weight 0."""
        return sample.weight != 0.0 and sample.returns is not None

    def __call__(self, inputs: ValueInputs, totals: Totals) -> Loss:
        off = ~inputs.loss_mask
        predictions, values, returns = (
            tensor.masked_fill(off, 0.0) for tensor in (inputs.predictions, inputs.values, inputs.returns)
        )
        change = predictions - values
        clipped = values + change.clamp(-self.clip, self.clip)
        plain_error, clipped_error = (predictions - returns).square(), (clipped - returns).square()
        errors = 0.5 * torch.maximum(plain_error, clipped_error) * inputs.weights.unsqueeze(-1)

        def mean(numbers: torch.Tensor) -> torch.Tensor:
            numbers = numbers.detach().to(predictions.dtype)
            return aggregate_tokens(numbers, inputs.loss_mask, "token-mean", totals)

        return Loss(
            loss=aggregate_tokens(errors, inputs.loss_mask, self.aggregate, totals),
            metrics={
                "value/mean": mean(predictions),
                "returns/mean": mean(returns),
                "value/squared_error": mean(plain_error),
                "value/clip_frac": mean((change.abs() > self.clip) & (clipped_error > plain_error)),
            },
        )
