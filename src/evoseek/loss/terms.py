"""What is added to any loss: importance weights inside, a KL term and an entropy bonus outside."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch

from evoseek.errors import TrainingError
from evoseek.loss.base import Aggregate, Loss, LossFn, LossInputs, Totals, aggregate_tokens
from evoseek.loss.settings import AlgorithmSettings
from evoseek.types import TrainingSample

Level = Literal["token", "sequence"]
Outside = Literal["truncate", "mask"]

IMPORTANCE_CAP = 2.0  # the largest importance weight that is neither truncated nor masked


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
    """Correction for a sampler whose probabilities differ from the learner's at the same weights.

        w_t = exp(old_logprob_t - rollout_logprob_t)            level "token"
        w   = exp(sum over the action tokens of the same)       level "sequence"

    Fast samplers round differently, so training is off-policy even without a step in between. `old_logprobs` are the
    learner's own before the batch's first step, and the weights multiply the advantages. Unbounded they have no useful
    variance, so what lies outside [low, high] is

        "truncate"  clamped to the bound: truncated importance sampling (Yao et al., "Your Efficient RL Framework
                    Secretly Brings You Off-Policy RL Training", https://fengyao.notion.site/off-policy-rl; low = 0,
                    high = 2)
        "mask"      given weight 0: IcePop (arXiv 2510.18855) for tokens, with both bounds; masked importance sampling
                    for sequences

    Token weights are biased but have a low variance. The sequence weight is exact, but fails for long sequences, where
    hardly any product of ratios is near 1. Loss terms that are no multiple of an advantage (KL, entropy) are not
    corrected.

    Returns detached weights [B, T], the same all along a sequence for level "sequence", and which ones were out of
    bounds. Equal logprobs give exactly 1, if low <= 1 <= high. The bounds are applied to the logarithm, so nothing
    overflows.
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
        """Whatever the other loss returns."""
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


def kl_k3(logprobs: torch.Tensor, ref_logprobs: torch.Tensor) -> torch.Tensor:
    """The estimate k3 of KL(policy || reference) at each token of the policy, [B, T]: exp(d) - d - 1, d = ref_logprob -
    logprob (J. Schulman, http://joschu.net/blog/kl-approx.html; GRPO's penalty, arXiv 2402.03300, eq. 4).

    It is unbiased and never negative. As a loss it pulls the policy back, though not exactly along the gradient of the
    KL; where the reference gives a token a far higher probability than the policy, exp(d) makes one token outweigh all
    others. (k1, logprob - ref_logprob, is for a reward, `training.update.kl_penalties`: as a loss it is useless, since
    its gradient is that of the logprobs, whose expectation is 0.)
    """
    difference = ref_logprobs - logprobs
    return difference.exp() - difference - 1.0


@dataclass(frozen=True, slots=True)
class WithKL:
    """Another LossFn plus `coefficient` times the KL to the reference policy, aggregated over the action tokens.

    A sample's weight multiplies its KL. The metric `kl` is the mean over tokens. Raises TrainingError if the samples
    carry no reference logprobs.
    """

    loss: LossFn[LossInputs]
    coefficient: float
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
        kl = kl_k3(inputs.logprobs.masked_fill(off, 0.0), inputs.ref_logprobs.masked_fill(off, 0.0))
        weighted = kl * inputs.weights.unsqueeze(-1)
        penalty = aggregate_tokens(weighted, inputs.loss_mask, self.aggregate, totals)
        inner = self.loss(inputs, totals)
        mean = aggregate_tokens(kl.detach(), inputs.loss_mask, "token-mean", totals)
        return Loss(loss=inner.loss + self.coefficient * penalty, metrics={**inner.metrics, "kl": mean})


@dataclass(frozen=True, slots=True)
class WithEntropy:
    """Another LossFn minus `coefficient` times the policy's entropy on the action tokens (A3C, arXiv 1602.01783,
    section 4), which rewards exploration.

    It counters a policy that collapses before it has found rewarding actions. Too large a coefficient makes the policy
    random; in long answers it rewards tokens that do not matter.

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


def wrapped(loss: LossFn[LossInputs], settings: AlgorithmSettings) -> LossFn[LossInputs]:
    """The loss with the terms that are switched on. KL and entropy are aggregated as the loss aggregates its tokens."""
    aggregate: Aggregate = getattr(loss, "aggregate", "token-mean")
    loss = corrected(loss, settings)
    if settings.kl_in == "loss" and settings.kl_coefficient > 0:
        loss = WithKL(loss, settings.kl_coefficient, aggregate)
    if settings.entropy_coefficient > 0:
        loss = WithEntropy(loss, settings.entropy_coefficient, aggregate)
    return loss


def corrected(loss: LossFn[LossInputs], settings: AlgorithmSettings) -> LossFn[LossInputs]:
    """The loss with importance weights, if they are switched on, and nothing else."""
    if settings.importance == "none":
        return loss
    level: Level = getattr(loss, "level", "token")
    low = 1.0 / IMPORTANCE_CAP if settings.importance == "mask" else 0.0
    return WithImportance(loss, level=level, outside=settings.importance, low=low, high=IMPORTANCE_CAP)
