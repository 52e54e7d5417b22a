"""The inputs and outputs of a loss: the interface between the learner and the algorithms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, TypeVar

import torch

from evoseek.loss.settings import LossSettings
from evoseek.types import TrainingSample


@dataclass(frozen=True, slots=True)
class Totals:
    """Action tokens and sequences of the *whole* batch of an optimizer step, over all its micro-batches.

    Dividing by these instead of by a micro-batch's own counts makes the gradient independent of how the batch was
    split, and lets samples without any gradient be left out of the forward pass while still being counted.
    """

    tokens: int
    sequences: int


@dataclass(frozen=True, slots=True)
class LossInputs:
    """The inputs of a policy's loss: one micro-batch, B samples of T tokens. Off `loss_mask` every float is 0.

    `logprobs` (and `entropies`, where the learner was asked for it) carry the gradient, under the sampling
    temperature. `rollout_logprobs` are the sampler's record, `old_logprobs` those of the policy that the ratio is
    taken to (`TrainingSample`), `ref_logprobs` a reference policy's, if there is one. `weights` is [B].
    """

    logprobs: torch.Tensor
    rollout_logprobs: torch.Tensor
    old_logprobs: torch.Tensor
    advantages: torch.Tensor
    loss_mask: torch.Tensor
    weights: torch.Tensor
    entropies: torch.Tensor
    ref_logprobs: torch.Tensor | None = None

    @property
    def weighted_advantages(self) -> torch.Tensor:
        """`advantages` times the samples' weights."""
        return self.advantages * self.weights.unsqueeze(-1)


@dataclass(frozen=True, slots=True)
class ValueInputs:
    """The inputs of a critic's loss: `predictions` [B, T] carry the gradient, `values` are the predictions before the
    batch's first optimizer step, `returns` the targets. Off `loss_mask` every float is 0; `weights` is [B]."""

    predictions: torch.Tensor
    values: torch.Tensor
    returns: torch.Tensor
    loss_mask: torch.Tensor
    weights: torch.Tensor


@dataclass(frozen=True, slots=True)
class Loss:
    """A scalar to differentiate and its metrics (detached scalars).

    Both are shares of the whole batch (divided by `Totals`): added up over micro-batches they give the batch's value.
    """

    loss: torch.Tensor
    metrics: Mapping[str, torch.Tensor]


Inputs = TypeVar("Inputs", contravariant=True)


class LossFn(Protocol[Inputs]):
    """An algorithm's loss, as the learner calls it for each micro-batch: of LossInputs, a critic's of ValueInputs."""

    def contributes(self, sample: TrainingSample) -> bool:
        """False if the sample's gradient is zero whatever the model: it is then counted but not computed."""
        ...

    def __call__(self, inputs: Inputs, totals: Totals) -> Loss:
        """The micro-batch's share of the loss."""
        ...


class PolicyLoss:
    """What a policy's loss declares besides its value. Derive from it, or define both yourself.

    `level` is that of the loss's ratios, at which importance weights are taken too. `Settings` are its settings: the
    fields of the table [loss] beside `name`.
    """

    __slots__ = ()
    level: ClassVar[Literal["token", "sequence"]] = "token"
    Settings: ClassVar[type[LossSettings]] = LossSettings

    def contributes(self, sample: TrainingSample) -> bool:
        """False if every advantage is 0, as in a group whose rewards are all equal, or the weight is."""
        return sample.weight != 0.0 and any(sample.advantages)


Aggregate = Literal["token-mean", "sequence-mean-token-mean", "sequence-sum"] | int
"""From per-token values [B, T] to one number, the main difference between the GRPO variants:

token-mean                sum over all tokens / number of tokens (DAPO, arXiv 2503.14476): long answers weigh more
sequence-mean-token-mean  mean over sequences of each one's token mean (GRPO, arXiv 2402.03300)
sequence-sum              mean over sequences of each one's token sum (REINFORCE)
a number n                the same divided by a constant length n instead of its own (Dr. GRPO, arXiv 2503.20783)
"""


def aggregate_tokens(values: torch.Tensor, loss_mask: torch.Tensor, mode: Aggregate, totals: Totals) -> torch.Tensor:
    """Reduce values [B, T] over `loss_mask` to a scalar: this micro-batch's share of the batch's aggregate.

    `totals` counts the whole batch. An empty mask gives 0, never a division by zero.
    """
    values = values.masked_fill(~loss_mask, 0.0)
    tokens, sequences = max(totals.tokens, 1), max(totals.sequences, 1)
    match mode:
        case "token-mean":
            return values.sum() / tokens
        case "sequence-mean-token-mean":
            return (values.sum(dim=-1) / loss_mask.sum(dim=-1).clamp(min=1)).sum() / sequences
        case "sequence-sum":
            return values.sum() / sequences
        case int(length):
            return values.sum() / (sequences * length)
