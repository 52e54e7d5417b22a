"""Keys and values of many trajectories in fixed slots, for unmodified Hugging Face models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from evoseek.errors import PolicyError

PADDING = -1  # stands for a position in `SlotCache.aim`
_FIRST_CAPACITY = 256


@dataclass(slots=True)
class _Target:
    """Where the next forward pass of R rows and T tokens writes and what it reads; shared by all layers."""

    slots: Tensor  # [R]
    columns: Tensor  # [R, T] positions, the last column for padding
    in_order: bool  # the slots are 0 .. R-1, so that reading needs no copy
    length: int  # positions 0 .. length-1 are read
    indices: dict[tuple[int, int], Tensor] = field(default_factory=dict[tuple[int, int], Tensor])

    def index(self, heads: int, width: int) -> Tensor:
        """[R * heads * T] into the flattened axes (slot, head, column) of a store; made once for layers alike."""
        if (heads, width) not in self.indices:
            lines = self.slots[:, None] * heads + torch.arange(heads, device=self.slots.device)  # [R, heads]
            self.indices[heads, width] = (lines[:, :, None] * width + self.columns[:, None]).flatten()
        return self.indices[heads, width]


class SlotCache(Cache):
    """A cache of [slots, positions] keys and values per layer, in which each row of a batch has its own length.

    Before each forward pass `aim` says which slot each row is and which positions its tokens take; it gives the 2-D
    position ids and the 4-D mask to call the model with. Room along the positions grows by doubling up to `max_length`.
    """

    def __init__(self, model: PreTrainedModel, *, slots: int, max_length: int) -> None:
        _check_supported(model, max_length)
        self.max_length = max_length
        self._device = model.device
        self._dtype = model.dtype
        self._capacity = min(_FIRST_CAPACITY, max_length)
        count = int(model.config.get_text_config().num_hidden_layers)
        self._stores = [_SlotLayer(slots, self._capacity) for _ in range(count)]
        super().__init__(layers=list(self._stores))

    def aim(self, slots: Sequence[int], positions: Sequence[Sequence[int]], length: int) -> tuple[Tensor, Tensor]:
        """Set where the next forward pass writes and reads.

        slots: of each of R rows, distinct. positions: R lists of T positions, PADDING where a token is none. length:
        how many positions are read; it must exceed every position. Gives the position ids [R, T] and the additive mask
        [R, 1, T, length], under which a token sees the positions of its own slot up to its own.
        """
        self._reserve(length)
        given = torch.tensor(positions, device=self._device)  # [R, T]
        target = _Target(
            slots=torch.tensor(list(slots), device=self._device),
            columns=given.masked_fill(given == PADDING, self._capacity),
            in_order=list(slots) == list(range(len(slots))),
            length=length,
        )
        for store in self._stores:
            store.target = target
        position_ids = given.clamp(min=0)
        hidden = torch.arange(length, device=self._device) > position_ids[:, None, :, None]  # [R, 1, T, length]
        mask = torch.zeros(hidden.shape, dtype=self._dtype, device=self._device).masked_fill_(hidden, float("-inf"))
        return position_ids, mask

    def swap(self, left: Sequence[int], right: Sequence[int], length: int) -> None:
        """Exchange the first `length` positions of slot left[i] and slot right[i]; all slots are distinct."""
        to = torch.tensor([*left, *right], device=self._device)
        source = torch.tensor([*right, *left], device=self._device)
        for store in self._stores:
            store.permute(to, source, length)

    @torch.inference_mode()
    def clear(self) -> None:
        """Overwrite everything with zeros: a stale value that is not finite would not stay behind the mask."""
        for store in self._stores:
            store.reset()

    def _reserve(self, length: int) -> None:
        capacity = self._capacity
        while capacity < length:
            capacity = min(2 * capacity, self.max_length)
        if capacity > self._capacity:
            for store in self._stores:
                store.grow(capacity - self._capacity)
            self._capacity = capacity


class _SlotLayer(CacheLayerMixin):
    """One layer's keys and values, each [slots, heads, capacity + 1, head size]. The last column takes what padding
    writes and is never read."""

    def __init__(self, slots: int, capacity: int) -> None:
        super().__init__()
        self._slots = slots
        self._capacity = capacity
        self.target: _Target | None = None
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate, with the shapes and type of the first states that come: [R, heads, T, head size]."""
        self.keys, self.values = (
            states.new_zeros(self._slots, states.shape[1], self._capacity + 1, states.shape[3])
            for states in (key_states, value_states)
        )
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the states [R, heads, T, head size] where `target` says; give what is read, [R, heads, length, ...]."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        return self._put(self.keys, key_states), self._put(self.values, value_states)

    def _put(self, store: Tensor | None, states: Tensor) -> Tensor:
        target = self.target
        if store is None or target is None:
            raise PolicyError("a slot cache was used without being aimed; call SlotCache.aim before each forward pass.")
        index = target.index(store.shape[1], store.shape[2])
        store.flatten(0, 2).index_copy_(0, index, states.flatten(0, 2))
        read = store[:, :, : target.length]
        return read[: len(target.slots)] if target.in_order else read.index_select(0, target.slots)

    def permute(self, to: Tensor, source: Tensor, length: int) -> None:
        """Copy the first `length` positions of the slots `source` to the slots `to`, as if all at once."""
        for store in (self.keys, self.values):
            if store is not None:
                part = store[:, :, :length]
                part.index_copy_(0, to, part.index_select(0, source))

    def grow(self, added: int) -> None:
        """Make room for `added` more positions."""
        self._capacity += added
        if self.keys is not None and self.values is not None:
            self.keys, self.values = (
                torch.cat([store, store.new_zeros(*store.shape[:2], added, store.shape[3])], dim=2)
                for store in (self.keys, self.values)
            )

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """(length read, offset); models that are given a 4-D mask do not ask."""
        return (self.target.length if self.target else query_length), 0

    def get_seq_length(self) -> int:
        """0: rows have lengths of their own, so the model is always given its positions."""
        return 0

    def get_max_length(self) -> int:
        """How many positions a slot has room for now."""
        return self._capacity


def _check_supported(model: PreTrainedModel, max_length: int) -> None:
    """Raise PolicyError unless every layer of the model attends to its whole past through keys and values."""
    name = type(model).__name__
    attention = model.config._attn_implementation  # pyright: ignore[reportPrivateUsage]
    if attention not in ("sdpa", "eager"):
        raise PolicyError(
            f"the embedded sampler got {name} with attention '{attention}'; it needs 'sdpa' or 'eager', which take a "
            "mask per row. Load the model with attn_implementation='sdpa'."
        )
    for number, layer in enumerate(DynamicCache(config=model.config).layers):
        if type(layer) is DynamicLayer:
            continue
        if type(layer) is not DynamicSlidingWindowLayer:
            raise PolicyError(
                f"the embedded sampler got {name}, whose layer {number} keeps a {type(layer).__name__}; it needs "
                "layers with ordinary attention (keys and values of the whole past). Choose such a model (Qwen2, "
                "Qwen3, Llama ...)."
            )
        if layer.sliding_window < max_length:
            raise PolicyError(
                f"the embedded sampler got {name}, whose layer {number} sees only the last {layer.sliding_window} "
                f"tokens, with contexts of up to {max_length}; it keeps the whole past of every layer. Set max_length "
                f"to at most {layer.sliding_window}, or choose a model with full attention."
            )
