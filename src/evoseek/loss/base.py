"""What goes into a loss and what comes out: the seam between the learner and the algorithms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

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
    """One micro-batch, B samples of T tokens, padded on the right. Off `loss_mask` every float is 0.

    `logprobs` and `entropies` are the learner's (only `logprobs` carries a gradient), `rollout_logprobs` the
    sampler's, both under the sampling temperature; `weights` is [B].
    """

    logprobs: torch.Tensor
    rollout_logprobs: torch.Tensor
    advantages: torch.Tensor
    loss_mask: torch.Tensor
    weights: torch.Tensor
    entropies: torch.Tensor


@dataclass(frozen=True, slots=True)
class Loss:
    """A scalar to differentiate and its metrics (detached scalars).

    Both are shares of the whole batch (divided by `Totals`): added up over micro-batches they give the batch's value.
    """

    loss: torch.Tensor
    metrics: Mapping[str, torch.Tensor]


class LossFn(Protocol):
    """An algorithm's loss, as the learner calls it for each micro-batch."""

    def contributes(self, sample: TrainingSample) -> bool:
        """False if the sample's gradient is zero whatever the policy: it is then counted but not computed."""
        ...

    def __call__(self, inputs: LossInputs, totals: Totals) -> Loss:
        """The micro-batch's share of the loss."""
        ...
