"""Additions to any loss: importance weights inside, a KL term and an entropy bonus outside."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch

from evoseek.errors import TrainingError
from evoseek.loss.base import Aggregate, Loss, LossFn, LossInputs, Totals, aggregate_tokens
from evoseek.loss.settings import AlgorithmSettings
from evoseek.types import TrainingSample

IMPORTANCE_CAP = 2.0  # the largest importance weight that is neither truncated nor masked


def importance_weights(
    old_logprobs: torch.Tensor,
    rollout_logprobs: torch.Tensor,
    loss_mask: torch.Tensor,
    *,
    level: Literal["token", "sequence"],
    outside: Literal["truncate", "mask"],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return weights that correct for a sampler whose probabilities differ from the learner's at the same weights.

        w_t = exp(old_logprob_t - rollout_logprob_t)            level "token"
        w   = exp(sum over the action tokens of the same)       level "sequence"

    Fast samplers round differently, so training is off-policy even without a step in between. `old_logprobs` are the
    learner's own before the batch's first step, and the weights multiply the advantages. The variance of unbounded
    weights is too large, so weights outside the bounds are

        "truncate"  clamped to 2: truncated importance sampling (Yao et al., "Your Efficient RL Framework Secretly
                    Brings You Off-Policy RL Training", https://fengyao.notion.site/off-policy-rl)
        "mask"      given weight 0, above 2 and below 1/2: IcePop (arXiv 2510.18855) for tokens; masked importance
                    sampling for sequences

    Token weights are biased but have a low variance. The sequence weight is exact, but fails for long sequences, whose
    products of ratios are rarely near 1. Loss terms that are not multiples of an advantage (KL, entropy) are not
    corrected.

    Returns detached weights [B, T], constant along a sequence for level "sequence", and a mask of the ones out of
    bounds. Equal logprobs give exactly 1. The bounds are applied to the logarithm, so nothing overflows.
    """
    log_ratio = (old_logprobs - rollout_logprobs).detach().masked_fill(~loss_mask, 0.0)
    if level == "sequence":
        log_ratio = log_ratio.sum(dim=-1, keepdim=True).expand_as(log_ratio)
    high = math.log(IMPORTANCE_CAP)
    low = -high if outside == "mask" else -math.inf
    is_outside = (log_ratio < low) | (log_ratio > high)
    weights = log_ratio.clamp(low, high).exp()
    return weights.masked_fill(is_outside, 0.0) if outside == "mask" else weights, is_outside


def kl_k3(logprobs: torch.Tensor, ref_logprobs: torch.Tensor) -> torch.Tensor:
    """Return the estimate k3 of KL(policy || reference) at each token of the policy, [B, T]: exp(d) - d - 1, d =
    ref_logprob - logprob (J. Schulman, http://joschu.net/blog/kl-approx.html; GRPO's penalty, arXiv 2402.03300, eq. 4).

    It is unbiased and never negative. As a loss it pulls the policy back, though not exactly along the gradient of the
    KL. If the reference gives a token a far higher probability than the policy, exp(d) makes this token outweigh all
    others. (k1, logprob - ref_logprob, is for a reward, `training.update.kl_penalties`. As a loss it is useless: its
    gradient is the logprobs' gradient, whose expectation is 0.)
    """
    difference = ref_logprobs - logprobs
    return difference.exp() - difference - 1.0


@dataclass(frozen=True, slots=True)
class WithTerms:
    """A LossFn plus the terms that are switched on, which aggregate tokens as that loss does.

    `importance` multiplies the loss's advantages by `importance_weights` at the level of its ratios. Their metrics are
    means over all tokens of the batch; samples without a gradient count as uncorrected. They are
    `sampling/importance_sampling_ratio/deviation` of |weight - 1|, and `.../outside_frac`, the share out of bounds.

    `kl` is the coefficient of the KL to the reference policy, whose mean over tokens is the metric `kl`.

    `entropy` is the coefficient of the policy's entropy on the action tokens (A3C, arXiv 1602.01783, section 4), which
    is subtracted. It rewards exploration and counters a collapse before the policy finds rewarding actions. Too large a
    coefficient makes the policy random; in long answers it rewards irrelevant tokens.

    A sample's weight multiplies its KL and its entropy. Raises TrainingError if the KL term lacks reference logprobs,
    or the entropy term a gradient.
    """

    loss: LossFn[LossInputs]
    importance: Literal["none", "truncate", "mask"] = "none"
    kl: float = 0.0
    entropy: float = 0.0

    def contributes(self, sample: TrainingSample) -> bool:
        """Return whether the weight is not 0, if there is a KL or entropy term; else the wrapped loss's answer."""
        return sample.weight != 0.0 if self.kl or self.entropy else self.loss.contributes(sample)

    def __call__(self, inputs: LossInputs, totals: Totals) -> Loss:
        terms: list[torch.Tensor] = []
        measured: dict[str, torch.Tensor] = {}
        if self.entropy:
            terms.append(-self.entropy * self._aggregate(_entropies(inputs), inputs, totals))
        if self.kl:
            kl = _kl(inputs)
            terms.append(self.kl * self._aggregate(kl, inputs, totals))
            measured["kl"] = _mean(kl.detach(), inputs, totals)
        if self.importance != "none":
            level: Literal["token", "sequence"] = getattr(self.loss, "level", "token")
            old, record, mask = inputs.old_logprobs, inputs.rollout_logprobs, inputs.loss_mask
            weights, is_outside = importance_weights(old, record, mask, level=level, outside=self.importance)
            inputs = replace(inputs, advantages=inputs.advantages * weights)
            measured |= {
                "sampling/importance_sampling_ratio/deviation": _mean((weights - 1.0).abs(), inputs, totals),
                "sampling/importance_sampling_ratio/outside_frac": _mean(is_outside.to(weights.dtype), inputs, totals),
            }
        inner = self.loss(inputs, totals)
        return Loss(sum(reversed(terms), start=inner.loss), {**inner.metrics, **measured})

    def _aggregate(self, values: torch.Tensor, inputs: LossInputs, totals: Totals) -> torch.Tensor:
        aggregate: Aggregate = getattr(self.loss, "aggregate", "token-mean")
        return aggregate_tokens(values * inputs.weights.unsqueeze(-1), inputs.loss_mask, aggregate, totals)


def wrapped(loss: LossFn[LossInputs], settings: AlgorithmSettings) -> LossFn[LossInputs]:
    """Return the loss with the terms of the settings; the loss itself if there are none."""
    kl = settings.kl_coefficient if settings.kl_in == "loss" else 0.0
    if settings.importance == "none" and kl == settings.entropy_coefficient == 0:
        return loss
    return WithTerms(loss, settings.importance, kl, settings.entropy_coefficient)


def _kl(inputs: LossInputs) -> torch.Tensor:
    if inputs.ref_logprobs is None:
        raise TrainingError(
            "The loss has a KL term, but not every sample has reference logprobs (ref_logprobs), which it is "
            "measured against. Compute them with a reference policy for all samples of the batch, or train without "
            "the KL term."
        )
    off = ~inputs.loss_mask
    return kl_k3(inputs.logprobs.masked_fill(off, 0.0), inputs.ref_logprobs.masked_fill(off, 0.0))


def _entropies(inputs: LossInputs) -> torch.Tensor:
    if inputs.logprobs.requires_grad and not inputs.entropies.requires_grad:
        raise TrainingError(
            "The loss has an entropy bonus, but the entropies were computed without a gradient, so that it would "
            "change nothing. Make the policy's forward pass with entropy_gradient=True, or train without the bonus."
        )
    return inputs.entropies


def _mean(values: torch.Tensor, inputs: LossInputs, totals: Totals) -> torch.Tensor:
    return aggregate_tokens(values, inputs.loss_mask, "token-mean", totals)
