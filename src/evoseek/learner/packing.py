"""A micro-batch in one row without padding, in which no sample sees another.

Except in attention, a model treats tokens one by one, so the row passes through it as a batch of one. Attention is
replaced by our own function, registered with transformers under its own name and active only during the pass. The
tokens that a sample adds to the row attend to each other on torch's causal kernels, and to a shared prefix through the
keys and values computed for it, whose gradient is the sum over the samples.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint
from transformers import AttentionInterface, PreTrainedConfig, PreTrainedModel

from evoseek.learner.batch import MicroBatch, PackedRow, lay_out
from evoseek.models.cpu_matmul import is_quick_bfloat16
from evoseek.samplers.torch.packed import attend_by_products, attention_named

_NAME = "evoseek_packed_row"
_BLOCK = 256  # queries multiplied together: their attention weights stay in the processor's cache
_KEPT = 1024  # keys of the longest span whose attention weights need no more memory than the rest of the layer
_TOLERANCE = 1e-3  # of a sample's states: rounding in float32 changes SmolLM2's by 1e-5, seeing another sample by 0.4


Body = Callable[..., Tensor]
"""A model's body: `input_ids` [B, T] to states [B, T, size]. Other arguments are for transformers."""


@dataclass(slots=True)
class _PrefixPass:
    """The state of a forward pass that attention needs, and its count of attention calls."""

    row: PackedRow
    calls: int = 0


@dataclass(frozen=True, slots=True)
class Actions:
    """The A different action tokens of a micro-batch: samples that are equal up to an action share it.

    states   [A, size]  before each of them
    targets  [A]        the tokens themselves
    """

    states: Tensor
    targets: Tensor
    _numbers: Tensor  # of each action, in the order of the mask
    _loss_mask: Tensor

    def spread(self, values: Tensor) -> Tensor:
        """Spread `values` [A] to their places in [B, T]; 0 off the mask."""
        return values.new_zeros(self._loss_mask.shape).masked_scatter(
            self._loss_mask, values.index_select(0, self._numbers)
        )


def run_actions(body: Body, config: PreTrainedConfig, batch: MicroBatch, limit: int) -> Actions:
    """Return the body's states before the action tokens of a micro-batch.

    Packed if no sample is longer than `limit`, which is `packing_limit`'s; else in rows padded on the right, without
    an attention mask: a causal model's real tokens never see the padding.
    """
    samples, positions = batch.loss_mask[:, 1:].nonzero(as_tuple=True)  # the position t before an action token t + 1
    if batch.row.longest <= limit:
        states = _run_packed(body, config, _PrefixPass(batch.row))
        places = batch.row.index[samples, positions]
    else:
        states = body(input_ids=batch.token_ids).flatten(0, 1)
        places = samples * batch.token_ids.shape[1] + positions
    pairs = places * config.vocab_size + batch.token_ids[batch.loss_mask]
    different, numbers = pairs.unique(return_inverse=True)
    found = states.index_select(0, different // config.vocab_size)
    return Actions(found, different % config.vocab_size, numbers, batch.loss_mask)


def at_least_float32(values: Tensor) -> Tensor:
    """Convert values to float32, unless they are float64."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


@torch.no_grad()
def packing_limit(body: Body, model: PreTrainedModel) -> int:
    """Return the length of this model's longest sample in a packed row; 0 if it cannot be packed.

    The test compares a row of short samples with shared prefixes to each sample alone, in float32: it tests the model's
    code, and in bfloat16 rounding changes the states of some models as much as seeing another sample. Sliding-window
    attention is ordinary attention for samples no longer than the window. A model does not fit if its attention is
    capped, has sinks or biases, or does not go through transformers' AttentionInterface.
    """
    config = model.config.get_text_config()
    samples = _ordinary_samples(config.vocab_size)
    row = lay_out(samples, model.device, shortest=2)
    inputs = [torch.tensor([sample], device=model.device) for sample in samples]
    trial = _PrefixPass(row)
    try:
        with _in_float32(model):
            packed = _run_packed(body, config, trial)
            alone = [body(input_ids=ids)[0] for ids in inputs]
    except Exception:  # of a model that takes no positions or arguments, or needs what `_attend` lacks
        return 0
    if trial.calls != config.num_hidden_layers:
        return 0
    for place, states in zip(row.index, alone, strict=True):
        if not (packed[place[: len(states)]] - states).norm() <= _TOLERANCE * states.norm():
            return 0
    return _window(config)


def _ordinary_samples(vocabulary: int) -> list[tuple[int, ...]]:
    """Return four samples: a tree of three, where the third branches off within what the second adds to the first, and
    one with another prefix. Their tokens are from the middle of the vocabulary: control tokens are at its ends, where a
    model that seldom saw them multiplies every rounding error."""
    pattern = [0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3, 4, 8, 7, 6, 5], [0, 1, 2, 3, 4, 8, 7, 0, 2], [6, 2, 8, 1, 3, 5]
    return [tuple((vocabulary // 4 + 37 * n % max(1, vocabulary // 2)) % vocabulary for n in ids) for ids in pattern]


@contextmanager
def _in_float32(model: nn.Module) -> Generator[None]:
    """Within the block, let each module of a model in half precision compute in float32, with copies of its weights for
    its own pass, so that no whole second model is needed."""
    kept: dict[nn.Parameter, Tensor] = {}

    def widen(module: nn.Module, _: object) -> None:
        for parameter in module.parameters(recurse=False):
            if parameter.dtype in (torch.bfloat16, torch.float16):
                kept[parameter] = parameter.data
                parameter.data = parameter.data.float()

    def restore(module: nn.Module, _: object, __: object) -> None:
        for parameter in module.parameters(recurse=False):
            if parameter in kept:
                parameter.data = kept.pop(parameter)

    hooks = [module.register_forward_pre_hook(widen) for module in model.modules()]
    hooks += [module.register_forward_hook(restore, always_call=True) for module in model.modules()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for parameter, values in kept.items():  # after a failed pass
            parameter.data = values


def _window(config: Any) -> int:
    """Return the number of tokens within which every attention layer sees all earlier tokens."""
    if set(getattr(config, "layer_types", None) or ("unknown",)) == {"full_attention"}:
        return sys.maxsize
    windows = (getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size"))
    return min((window for window in windows if window), default=sys.maxsize)


def _run_packed(body: Body, config: PreTrainedConfig, packed_pass: _PrefixPass) -> Tensor:
    """Return the states [N, size] of the row."""
    row = packed_pass.row
    with attention_named(config, _NAME):
        return body(input_ids=row.token_ids[None], position_ids=row.positions[None], packed_pass=packed_pass)[0]


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    packed_pass: _PrefixPass | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Compute attention for transformers: queries [1, heads, N, head size] to outputs [1, N, heads, ...]."""
    if packed_pass is None or any(others.get(name) is not None for name in ("softcap", "s_aux", "position_bias")):
        raise TypeError(f"{type(module).__name__} has attention that cannot be packed")
    packed_pass.calls += 1
    query, key = query.to(value.dtype), key.to(value.dtype)  # autocast does not reach attention with a bias
    row = packed_pass.row
    keys, values = key.split(list(row.pieces), dim=2), value.split(list(row.pieces), dim=2)
    outputs = [
        _causal(span, _join(keys, seen), _join(values, seen), scaling)
        for span, seen in zip(query.split(list(row.spans), dim=2), row.seen, strict=True)
    ]
    return torch.cat(outputs, dim=2).transpose(1, 2), None


def _join(pieces: Sequence[Tensor], numbers: Sequence[int]) -> Tensor:
    return torch.cat([pieces[n] for n in numbers], dim=2) if len(numbers) > 1 else pieces[numbers[0]]


def _causal(query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
    if is_quick_bfloat16(query):
        return causal_by_products(query[0], key[0], value[0], scaling)[None]
    if query.device.type == "cpu" and query.dtype == torch.bfloat16:
        return _causal(query.float(), key.float(), value.float(), scaling).to(query.dtype)
    grouped = query.shape[1] != key.shape[1]
    lengths = query.shape[2], key.shape[2]
    if lengths[0] == lengths[1]:
        return scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=grouped)
    bias = causal_lower_right(*lengths)
    return scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=scaling, enable_gqa=grouped)


def causal_by_products(query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
    """Compute `_causal` without the batch dimension, in blocks of queries that read no later keys.

    Heads that share keys and values become further queries. Attention weights are kept for the backward pass, except
    for a long span, where they are recomputed.
    """
    heads, ahead = len(query) // len(key), key.shape[1] - query.shape[1]
    outputs: list[Tensor] = []
    for block in query.unflatten(0, (len(key), heads)).split(_BLOCK, dim=2):
        width = block.shape[2]
        ahead += width
        mask = torch.full((width, ahead), float("-inf"), dtype=query.dtype).triu_(ahead - width + 1).repeat(heads, 1)
        inputs = (block.flatten(1, 2), key[:, :ahead], value[:, :ahead], mask, scaling)
        if key.shape[1] > _KEPT and torch.is_grad_enabled():
            output = cast(
                Tensor, checkpoint(attend_by_products, *inputs, use_reentrant=False, preserve_rng_state=False)
            )
        else:
            output = attend_by_products(*inputs)
        outputs.append(output.unflatten(1, (heads, width)))
    return torch.cat(outputs, dim=2).flatten(0, 1)


AttentionInterface.register(_NAME, _attend)
