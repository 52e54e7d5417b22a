"""One forward pass over new tokens of many trajectories, packed one after the other without padding.

Prefill and decoding are the same here: each trajectory adds a span of one or more tokens to its slot. Except for
attention, a model treats tokens separately, so the N tokens pass through it as a batch of one row. Attention is
replaced by our own function, registered with transformers under its own name and active only during the pass. Single
tokens attend together over a view of the slots, without a copy; longer spans attend in padded groups of similar
lengths. Heads that share a head of keys and values attend as further queries of that head, so that it is read once and
never copied.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedConfig, PreTrainedModel

from evoseek.errors import PolicyError
from evoseek.models.cpu_matmul import is_quick_bfloat16
from evoseek.samplers.torch.slots import SlotCache

SHARED = 16
"""Minimum length of a common prefix to copy, or in training to compute once (`bench/learner.py --only prefix`)."""

_NAME = "evoseek_slots"
_ALIKE = 4  # maximum ratio of the longest to the shortest span in a group


@contextmanager
def attention_named(config: PreTrainedConfig, name: str) -> Generator[None]:
    """Make the model of this (text) configuration use the attention registered under `name` within the block."""
    settings = cast("Any", config)
    usual = settings._attn_implementation
    settings._attn_implementation = name
    try:
        yield
    finally:
        settings._attn_implementation = usual


@dataclass(frozen=True, slots=True)
class Span:
    """New tokens of one slot, which holds `start` positions already."""

    slot: int
    start: int
    ids: Sequence[int]

    @property
    def end(self) -> int:
        """The length of the slot with the new tokens."""
        return self.start + len(self.ids)


@dataclass(frozen=True, slots=True)
class _Group:
    """R rows of T queries that attend together."""

    slots: Tensor | int  # [R], or the first R
    length: int  # of keys and values read
    queries: Tensor  # [R * T] into the N tokens; any token for padding
    shape: tuple[int, int]  # R, T
    mask: Tensor  # [R, 1, T, length], additive
    kept: Tensor  # [N'] into R * T: the queries that are tokens, in their order
    masks: dict[int, Tensor] = field(default_factory=dict[int, Tensor])

    def mask_for(self, heads: int) -> Tensor:
        """Return the mask [R, 1, heads * T, length] for heads that attend as further queries; equal layers share it."""
        if heads not in self.masks:
            self.masks[heads] = self.mask.expand(-1, heads, -1, -1).flatten(1, 2)[:, None]
        return self.masks[heads]


@dataclass(frozen=True, slots=True)
class _Pass:
    cache: SlotCache
    groups: Sequence[_Group]


@torch.inference_mode()
def packed_logits(model: PreTrainedModel, cache: SlotCache, spans: Sequence[Span]) -> Tensor:
    """Add the spans to their slots; return the logits [S, V] after the last token of each of S spans.

    The slots are distinct; the spans come in the order of (number of tokens, slot).
    """
    device = model.device
    sizes = torch.tensor([len(span.ids) for span in spans])
    ends = sizes.cumsum(0)
    ids = torch.tensor([token for span in spans for token in span.ids], device=device)
    starts = torch.tensor([span.start for span in spans])
    slots = torch.tensor([span.slot for span in spans])
    positions = torch.arange(len(ids)) + (starts - ends + sizes).repeat_interleave(sizes)
    positions = positions.to(device)
    cache.reserve(max(span.slot for span in spans), max(span.end for span in spans))
    cache.aim(slots.repeat_interleave(sizes).to(device), positions)
    with attention_named(model.config.get_text_config(), _NAME):
        return model(
            input_ids=ids[None],
            position_ids=positions[None],
            **{_cache_argument(type(model)): cache},
            use_cache=True,
            logits_to_keep=(ends - 1).to(device),
            slot_pass=_Pass(cache, _groups(spans, model.dtype, device)),
        ).logits[0]


@functools.cache
def _cache_argument(model: type[PreTrainedModel]) -> str:
    """Return the name of the argument for keys and values, which transformers renamed in 5.24."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def common_length(left: Sequence[int], right: Sequence[int]) -> int:
    """Return the length of the common prefix of two contexts, which are of the same type of sequence."""
    limit = min(len(left), len(right))
    if left[:limit] == right[:limit]:
        return limit
    return next(place for place, (one, other) in enumerate(zip(left, right, strict=False)) if one != other)


def find_longest(
    ids: Sequence[int], others: Iterable[tuple[Sequence[int], int]], known: int = 0
) -> tuple[int, int | None]:
    """Find the longest prefix that `ids` shares with one of `others` (each a context and the number of its tokens that
    count); return its length and the number of the first such context.

    If it has fewer than `SHARED` tokens after the first `known`, return (known, None). The last token is left out,
    since it is always computed.
    """
    best, found = known, None
    first = slice(known, known + SHARED)
    for number, (other, length) in enumerate(others):
        if length > best and other[first] == ids[first]:
            common = common_length(ids[:-1], other[:length])
            if common > max(best, known + SHARED - 1):
                best, found = common, number
    return best, found


def _groups(spans: Sequence[Span], dtype: torch.dtype, device: torch.device) -> list[_Group]:
    singles = next((number for number, span in enumerate(spans) if len(span.ids) > 1), len(spans))
    groups = [_single_tokens(spans[:singles], dtype, device)] if singles else []
    first, token = singles, singles
    while first < len(spans):
        last = first
        low = high = len(spans[first].ids)
        while last < len(spans):
            low, high = min(low, len(spans[last].ids)), max(high, len(spans[last].ids))
            if high > _ALIKE * low:
                break
            last += 1
        groups.append(_longer_spans(spans[first:last], token, dtype, device))
        token += sum(len(span.ids) for span in spans[first:last])
        first = last
    return groups


def _single_tokens(spans: Sequence[Span], dtype: torch.dtype, device: torch.device) -> _Group:
    """Let every slot up to the last one attend, so that keys and values need no copy; outputs of idle slots are
    dropped."""
    rows, length = spans[-1].slot + 1, max(span.end for span in spans)
    slots = torch.tensor([span.slot for span in spans])
    queries = torch.zeros(rows, dtype=torch.long).index_copy_(0, slots, torch.arange(len(spans)))
    positions = torch.zeros(rows, dtype=torch.long).index_copy_(0, slots, torch.tensor([span.start for span in spans]))
    mask = _mask(positions[:, None].to(device), length, dtype)
    return _Group(rows, length, queries.to(device), (rows, 1), mask, slots.to(device))


def _longer_spans(spans: Sequence[Span], first_token: int, dtype: torch.dtype, device: torch.device) -> _Group:
    sizes = torch.tensor([len(span.ids) for span in spans])
    width, length = int(sizes.max()), max(span.end for span in spans)
    steps = torch.arange(width)
    is_token = steps < sizes[:, None]  # [R, T]
    queries = torch.where(is_token, (first_token + sizes.cumsum(0) - sizes)[:, None] + steps, 0)
    positions = torch.tensor([span.start for span in spans])[:, None] + steps  # past the end: dropped
    return _Group(
        slots=torch.tensor([span.slot for span in spans], device=device),
        length=length,
        queries=queries.flatten().to(device),
        shape=(len(spans), width),
        mask=_mask(positions.to(device), length, dtype),
        kept=is_token.flatten().nonzero().squeeze(1).to(device),
    )


def _mask(positions: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    """Make a mask [R, 1, T, length] for queries at positions [R, T]: 0 up to a query's position, -infinity after it."""
    hidden = torch.arange(length, device=positions.device) > positions[:, None, :, None]
    return torch.zeros(hidden.shape, dtype=dtype, device=positions.device).masked_fill_(hidden, float("-inf"))


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    slot_pass: _Pass | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Compute attention in transformers' shape: queries [1, heads, N, head size] to outputs [1, N, heads, ...].

    The given keys and values belong to the new tokens; the cache has them already, so they are read from there.
    """
    extras = [name for name in ("softcap", "s_aux", "position_bias") if kwargs.get(name) is not None]
    if slot_pass is None or extras:
        raise PolicyError(
            f"the embedded sampler got a {type(module).__name__} that "
            + (f"needs {', '.join(extras)}" if extras else "does not hand its arguments on to attention")
            + ", which it does not have. Choose a model with ordinary attention, such as Qwen2, Qwen3 or Llama."
        )
    layer = cast(int, module.layer_idx)
    outputs: list[Tensor] = []
    for group in slot_pass.groups:
        rows, width = group.shape
        queries = query[0].index_select(1, group.queries).unflatten(1, (rows, width)).transpose(0, 1)
        keys, values = slot_pass.cache.read(layer, group.slots, group.length)
        heads = queries.shape[1] // keys.shape[1]  # that share keys and values
        merged = queries.unflatten(1, (keys.shape[1], heads)).flatten(2, 3)  # [R, KV heads, heads * T, head size]
        mask = group.mask_for(heads)
        if width > 1 and is_quick_bfloat16(merged):
            parts = zip(merged.unbind(1), keys.unbind(1), values.unbind(1), strict=True)
            output = torch.stack([attend_by_products(*part, mask[:, 0], scaling) for part in parts], dim=1)
        else:
            output = scaled_dot_product_attention(merged, keys, values, attn_mask=mask, scale=scaling)
        output = output.unflatten(2, (heads, width)).flatten(1, 2).transpose(1, 2)  # [R, T, all heads, head size]
        outputs.append(output.flatten(0, 1).index_select(0, group.kept))  # [N', all heads, head size]
    return torch.cat(outputs)[None], None


def attend_by_products(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float | None) -> Tensor:
    """Compute attention of queries [B, T, head size] to keys and values [B, L, head size], with `mask` [(B,) T, L]
    added: for bfloat16 on a CPU, where torch's own kernel is slower (`bench/real_speed.py`)."""
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return torch.bmm(torch.baddbmm(mask, query, key.mT, alpha=scale).softmax(dim=-1), value)


AttentionInterface.register(_NAME, _attend)
