"""The inputs and outputs of a loss: the interface between the learner and the algorithms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeVar, cast

import torch

from evoseek.errors import ConfigError, EvoseekError
from evoseek.loss.settings import LossSettings
from evoseek.types import TrainingSample


@dataclass(frozen=True, slots=True)
class Totals:
    """Action tokens and sequences of the *whole* batch of an optimizer step, over all its micro-batches.

    Dividing by these counts instead of a micro-batch's own makes the gradient independent of how the batch was split.
    Samples without any gradient can then be left out of the forward pass and still be counted.
    """

    tokens: int
    sequences: int


@dataclass(frozen=True, slots=True)
class LossInputs:
    """The inputs of a policy's loss: one micro-batch, B samples of T tokens. Off `loss_mask` every float is 0.

    `logprobs` (and `entropies`, on request) carry the gradient, under the sampling temperature. `rollout_logprobs` are
    the sampler's record, `old_logprobs` the denominators of ratios (`TrainingSample`), `ref_logprobs` a reference
    policy's, if there is one. `weights` is [B].
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

    Both are shares of the whole batch (divided by `Totals`): their sums over micro-batches are the batch's values.
    """

    loss: torch.Tensor
    metrics: Mapping[str, torch.Tensor]


Inputs = TypeVar("Inputs", contravariant=True)


class LossFn(Protocol[Inputs]):
    """An algorithm's loss, called for each micro-batch: a policy's with LossInputs, a critic's with ValueInputs."""

    def contributes(self, sample: TrainingSample) -> bool:
        """Return False if the sample's gradient is zero for any model: it is then counted but not computed."""
        ...

    def __call__(self, inputs: Inputs, totals: Totals) -> Loss: ...


class PolicyLoss:
    """What a policy's loss declares besides its value. Derive from it, or define both yourself.

    `level` is the level of the loss's ratios, and of importance weights. `Settings` are its settings: the fields of the
    table [loss] beside `name`.
    """

    __slots__ = ()
    level: ClassVar[Literal["token", "sequence"]] = "token"
    Settings: ClassVar[type[LossSettings]] = LossSettings

    def contributes(self, sample: TrainingSample) -> bool:
        """Return False if every advantage is 0, as in a group whose rewards are all equal, or the weight is."""
        return sample.weight != 0.0 and any(sample.advantages)


Aggregate = Literal["token-mean", "sequence-mean-token-mean", "sequence-sum"] | int
"""How per-token values [B, T] become one number, the main difference between the GRPO variants:

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


def check_loss(loss: LossFn[LossInputs]) -> None:
    """Call a loss on two made-up samples, since a step may have none with a gradient. Raises ConfigError if it fails,
    or returns anything but a finite scalar with a gradient and scalar metrics."""
    name = getattr(loss, "__name__", type(loss).__name__)
    try:
        given: object = loss(*_made_up())
    except EvoseekError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"The loss {name} failed on two made-up samples: {type(error).__name__}: {error}. Nothing was trained on. "
            "Correct the loss."
        ) from error
    if fault := _fault_of(given):
        raise ConfigError(
            f"The loss {name} gave {fault}. Expected Loss(loss, metrics) of evoseek.loss.base: a scalar tensor with a "
            "gradient, and metrics that are detached scalar tensors by name. Nothing was trained on. Correct the loss."
        )


def _fault_of(given: object) -> str:
    """Describe what is wrong with a loss's result; "" if it is valid."""
    if not isinstance(given, Loss):
        return f"an object of the type {type(given).__name__}, not Loss"
    loss, metrics = cast("object", given.loss), cast("object", given.metrics)
    if not isinstance(loss, torch.Tensor):
        return f"a loss of the type {type(loss).__name__}, not a tensor"
    if loss.numel() != 1:
        return f"a loss of the shape {list(loss.shape)}, not a scalar"
    if not loss.requires_grad:
        return "a loss without a gradient (it is detached from the logprobs)"
    if not bool(loss.isfinite()):
        return f"the loss {float(loss.detach())} for two made-up samples with logprobs of -0.5"
    if not isinstance(metrics, Mapping):
        return f"metrics of the type {type(metrics).__name__}, not a mapping"
    for key, value in cast("Mapping[object, Any]", metrics).items():
        if not (isinstance(key, str) and isinstance(value, torch.Tensor) and value.numel() == 1):
            return f"the metric {key!r} = {value!r}, not a scalar tensor by its name"
    return ""


def _made_up() -> tuple[LossInputs, Totals]:
    """Make a right and a wrong rollout, each of one prompt token and up to three action tokens."""
    loss_mask = torch.tensor([[False, True, True, True], [False, True, True, False]])

    def filled(value: float) -> torch.Tensor:
        return torch.full(loss_mask.shape, value).masked_fill(~loss_mask, 0.0)

    record = filled(-0.5)
    inputs = LossInputs(
        logprobs=record.clone().requires_grad_() * 1.0,
        rollout_logprobs=record,
        old_logprobs=record,
        advantages=filled(1.0) * torch.tensor([[1.0], [-1.0]]),
        loss_mask=loss_mask,
        weights=torch.ones(2),
        entropies=filled(0.5).requires_grad_() * 1.0,
        ref_logprobs=record,
    )
    return inputs, Totals(tokens=5, sequences=2)
