"""Forward passes at the action tokens: logprobs of a causal language model, without the [T, V] logits of other tokens,
and a critic's values; activation checkpointing, which saves memory.

`score` runs them without a gradient: for a reference's logprobs, the learner's before a step, a critic's values. The
reference may be a separate model, or the trained one with its adapters off (`active=base_of(policy).active`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import MethodType
from typing import Any, Literal, Protocol, TypeVar, cast, runtime_checkable

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from evoseek.errors import PolicyError
from evoseek.learner.batch import MicroBatch, loss_inputs, make_batch, smaller_budget, split_by_tokens
from evoseek.learner.distributed import ALONE, Ranks
from evoseek.learner.packing import at_least_float32, packing_limit, run_actions
from evoseek.learner.settings import MAX_LOGITS
from evoseek.loss.base import LossInputs, ValueInputs
from evoseek.samplers.torch.packed import attention_named
from evoseek.types import TrainingSample

Given = TypeVar("Given", LossInputs, ValueInputs, covariant=True)


class Forward(Protocol[Given]):
    """A model's forward pass over a micro-batch: `LogprobModel` for a policy, `ValueModel` for a critic."""

    @property
    def model(self) -> nn.Module:
        """The model that is trained."""
        ...

    @property
    def packing_limit(self) -> int:
        """The length of the longest sample that can be packed; 0 if none can."""
        ...

    def __call__(self, batch: MicroBatch) -> Given:
        """Return the inputs of the loss."""
        ...


AnyForward = Forward[LossInputs] | Forward[ValueInputs]
TokenValues = list[list[float]]


class LogprobModel(nn.Module):
    """Computes logprobs and entropies of the action tokens for any Hugging Face causal language model.

    The decoder's body runs over the micro-batch, packed in one row without padding if the model's attention allows it.
    The output head runs only where an action token is predicted, in chunks of at most `MAX_LOGITS` logits. At
    construction short inputs are tried both ways. If a model's logits are not simply head(body(...)), for example
    scaled or soft-capped, its own forward pass is used, at the price of logits for all tokens. If its attention cannot
    be packed (`packing.packing_limit`), it gets padded rows. `probe_model` tries a model whose weights are read later.

    `temperature` is the one the samples were drawn at. Entropies carry a gradient only with `entropy_gradient`. Body
    and head both run inside `forward`, so that a wrapper around this module (FSDP) sees all uses of the parameters.
    Raises PolicyError if the model is not causal.
    """

    def __init__(self, model: PreTrainedModel, *, temperature: float = 1.0, entropy_gradient: bool = False) -> None:
        super().__init__()
        self.model = model
        self.temperature = temperature
        self.entropy_gradient = entropy_gradient
        self.config = model.config.get_text_config()
        self.applies_head, self.packing_limit = False, 0
        if model.device.type != "meta":
            self.probe_model()

    def probe_model(self) -> None:
        """Find out how to apply the model's head, and the longest sample of a packed row. Raises PolicyError if the
        model is not causal."""
        self.applies_head = _applies_head(self.model)
        self.packing_limit = packing_limit(self._body, self.model)

    @property
    def layout(self) -> str:
        """The layout of samples in a micro-batch, in words."""
        if not self.packing_limit:
            return "Samples are padded to one length, since this model's attention cannot be packed."
        longest = f" of up to {self.packing_limit} tokens" if self.packing_limit < sys.maxsize else ""
        return f"Samples{longest} are packed into one row, without padding."

    def forward(self, batch: MicroBatch) -> LossInputs:
        """Return the loss inputs of the micro-batch: logprobs [B, T] float32 of each action token given all before."""
        actions = run_actions(self._body, self.config, batch, self.packing_limit)
        scored, entropies = self._score(actions.states, actions.targets)
        logprobs, entropies = actions.spread(scored), actions.spread(entropies)
        return loss_inputs(batch, logprobs, entropies)

    def _body(self, **inputs: Any) -> Tensor:
        """Return hidden states [B, T, d], or logits [B, T, V] if the head cannot be applied separately."""
        if self.applies_head:
            return cast("Any", self.model.base_model)(**inputs, use_cache=False).last_hidden_state
        return cast("Any", self.model)(**inputs, use_cache=False).logits

    def _score(self, states: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return logprobs and entropies [M] at M positions, in chunks if their logits would be too large."""
        rows = max(1, MAX_LOGITS.get(states.device.type, 1 << 24) // self.config.vocab_size)
        if len(states) <= rows:
            return self._score_chunk(states, targets)
        chunks = [
            cast(
                "tuple[Tensor, Tensor]",
                checkpoint(self._score_chunk, *chunk, use_reentrant=False, preserve_rng_state=False),
            )
            for chunk in zip(states.split(rows), targets.split(rows), strict=True)
        ]
        logprobs, entropies = zip(*chunks, strict=True)
        return torch.cat(logprobs), torch.cat(entropies)

    def _score_chunk(self, states: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        logits = cast("nn.Module", self.model.get_output_embeddings())(states) if self.applies_head else states
        scaled = at_least_float32(logits)
        if self.temperature != 1.0:
            scaled = scaled / self.temperature
        log_p = scaled.log_softmax(dim=-1)
        del logits, scaled  # drop the last references: only log_p is needed from here on
        logprobs = log_p.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        if self.entropy_gradient:
            return logprobs, -(log_p.exp() * log_p).sum(dim=-1)
        with torch.no_grad():
            return logprobs, -log_p.exp().mul_(log_p).sum(dim=-1)


class ValueModel(nn.Module):
    """Predicts, for each action token, the value of the state *before* it: the head on the body's state at t - 1.

    The model is a transformers token classifier with one label, as `models.load.load_critic` gives, in evaluation mode,
    so that dropout is off. The micro-batch is packed as in LogprobModel. Raises PolicyError if the model has no such
    head.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model
        self.config = model.config.get_text_config()
        if _value_head(model) is None or model.config.num_labels != 1:
            raise PolicyError(
                f"The critic is a {type(model).__name__} with {model.config.num_labels} labels. Expected a model for "
                "token classification with one label, whose head is called `score` or `classifier`. Load it with "
                "load_critic."
            )
        self.packing_limit = packing_limit(self._body, model)

    def forward(self, batch: MicroBatch) -> ValueInputs:
        """Return the loss inputs of the micro-batch: predictions [B, T] float32 at the action tokens."""
        actions = run_actions(self._body, self.config, batch, self.packing_limit)
        predictions = at_least_float32(cast("nn.Module", _value_head(self.model))(actions.states).squeeze(-1))
        return ValueInputs(
            predictions=actions.spread(predictions),
            values=batch.values,
            returns=batch.returns,
            loss_mask=batch.loss_mask,
            weights=batch.weights,
        )

    def _body(self, **inputs: Any) -> Tensor:
        return cast("Any", self.model.base_model)(**inputs, use_cache=False).last_hidden_state


@torch.no_grad()
def _applies_head(model: PreTrainedModel) -> bool:
    """Return whether the model's logits are its head applied to its body's states. Raises PolicyError if it is not
    causal."""
    vocabulary = model.config.get_text_config().vocab_size
    token_ids = (torch.arange(8, device=model.device) % vocabulary).unsqueeze(0)
    changed = token_ids.clone()
    changed[0, 1:] = (changed[0, 1:] + 1) % vocabulary
    expected = cast("Any", model)(input_ids=token_ids, use_cache=False).logits
    effect = (expected - cast("Any", model)(input_ids=changed, use_cache=False).logits)[0, 0].abs().max()
    if effect > 8 * torch.finfo(expected.dtype).eps * expected.abs().max():  # rounding; a causal model's is exactly 0
        raise PolicyError(
            f"{type(model).__name__} is not causal: changing tokens changed the logits before them. Choose "
            "a decoder-only causal language model."
        )
    head = cast("Callable[[Tensor], Tensor] | None", model.get_output_embeddings())
    if head is None or model.base_model is model:
        return False
    states = cast("Any", model.base_model)(input_ids=token_ids, use_cache=False).last_hidden_state
    return torch.equal(expected, head(states))


def _value_head(model: PreTrainedModel) -> nn.Module | None:
    return getattr(model, "score", None) or getattr(model, "classifier", None)


def checkpoint_activations(model: PreTrainedModel) -> None:
    """Let each decoder layer keep only its input for the backward pass (arXiv 1604.06174): memory falls from all
    activations to one state per token and layer plus one layer's activations, for one more forward pass.

    It also works in evaluation mode (transformers' own switch acts in training mode only). Passes without a gradient or
    with a cache do not change. Gradients are the same bit for bit. Raises PolicyError if the model has no layers that
    transformers can checkpoint.
    """
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise PolicyError(
            f"{type(model).__name__} has no layers that allow gradient checkpointing. Turn it off, or choose a "
            "family that supports it, such as Llama, Qwen2 or Qwen3."
        )
    for layer in layers:
        layer.__dict__["checkpointed_config"] = model.config.get_text_config()
        layer.forward = MethodType(_forward, layer)  # a method, so that deep copies of the layer get their own


def _forward(layer: Any, *inputs: Any, **others: Any) -> Any:
    """Compute the layer's forward pass; recomputation uses the attention backend of the first pass."""
    forward = type(layer).forward
    names = ("cache", "past_key_values")  # the first since transformers 5.24
    has_cache = any(others.get(name) is not None for name in names)
    if not torch.is_grad_enabled() or has_cache:
        return forward(layer, *inputs, **others)
    config = layer.checkpointed_config
    used: str = config._attn_implementation

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), attention_named(config, used)

    return checkpoint(
        forward, layer, *inputs, use_reentrant=False, preserve_rng_state=False, context_fn=contexts, **others
    )


@runtime_checkable
class Scorer(Protocol):
    """A forward pass of all samples together, on another machine."""

    def score(self, samples: Sequence[TrainingSample]) -> list[tuple[float, ...]]:
        """Return the values of each sample's T tokens, 0.0 off the mask."""
        ...


def score(
    forward: AnyForward,
    samples: Sequence[TrainingSample],
    *,
    token_budget: int,
    bf16: bool = False,
    ranks: Ranks = ALONE,
    active: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> list[tuple[float, ...]]:
    """Return the model's values at the T tokens of each sample: a policy's logprobs or a critic's values; 0.0 off the
    mask.

    token_budget: maximum tokens of a micro-batch. bf16: matrix products in bfloat16. ranks: share the work; each gets
    all results. active: entered around the passes; the `active` method of a policy that shares its model with others.

    If memory runs out, the micro-batches are halved and all is scored again. Raises TrainingError if a single sample
    does not fit, or memory runs out on one of several ranks.
    """
    if isinstance(forward, Scorer):
        with active():
            return forward.score(samples)
    while True:
        parts = split_by_tokens(samples, token_budget, forward.packing_limit)
        dealt = ranks.deal(parts)
        try:
            with torch.no_grad(), active():
                scored = [_score_part(forward, part, bf16) for part, _ in dealt]
            break
        except torch.OutOfMemoryError as error:
            token_budget = smaller_budget(token_budget, parts, ranks, str(error))
        torch.cuda.empty_cache()  # here the error, and with it the failed pass, is forgotten
    shares: list[list[TokenValues]] = ranks.gather(scored[: sum(counts for _, counts in dealt)])
    found: dict[int, list[float]] = {}
    for rank, rows in enumerate(shares):
        for part, values in zip(parts[rank :: ranks.size], rows, strict=True):
            found |= zip(map(id, part), values, strict=True)
    return [_padded(found.get(id(sample), []), len(sample.token_ids)) for sample in samples]


def with_scores(
    field: Literal["ref_logprobs", "old_logprobs", "values"],
    samples: Sequence[TrainingSample],
    forward: AnyForward,
    **how: Any,
) -> list[TrainingSample]:
    """Fill in a field by `score`: `ref_logprobs` by a reference policy; `old_logprobs` by the learner's policy or
    `values` by a critic, before a batch's first step."""
    rows = score(forward, samples, **how)
    return [replace(sample, **{field: row}) for sample, row in zip(samples, rows, strict=True)]


def _score_part(forward: AnyForward, part: Sequence[TrainingSample], bf16: bool) -> TokenValues:
    device = next(forward.model.parameters()).device
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bf16):
        inputs = forward(make_batch(part, device))
    return (inputs.logprobs if isinstance(inputs, LossInputs) else inputs.predictions).tolist()


def _padded(row: Sequence[float], length: int) -> tuple[float, ...]:
    """Pad or cut a micro-batch's row to `length`."""
    return tuple(row[:length]) + (0.0,) * (length - len(row))
