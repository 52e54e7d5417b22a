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

_FIRST_CAPACITY = 256  # positions


@dataclass(slots=True)
class _Target:
    """Where the tokens of the next forward pass go; shared by all layers."""

    slots: Tensor  # [N]
    positions: Tensor  # [N]
    indices: dict[tuple[int, int], Tensor] = field(default_factory=dict[tuple[int, int], Tensor])

    def index(self, heads: int, capacity: int) -> Tensor:
        """Return [heads * N] indices into the flattened axes (slot, head, position); equal layers share them."""
        if (heads, capacity) not in self.indices:
            lines = self.slots * heads + torch.arange(heads, device=self.slots.device)[:, None]  # [heads, N]
            self.indices[heads, capacity] = (lines * capacity + self.positions).flatten()
        return self.indices[heads, capacity]


class SlotCache(Cache):
    """A cache of [slots, positions] keys and values per layer, in which every slot has its own length.

    A forward pass over N packed tokens (a batch of one row) writes the keys and values of each token to the place set
    by `aim`; attention then takes its slots with `read`. Memory is allocated for the slots and positions in use and a
    quarter more, up to `slots` and `max_length`. Results do not depend on the allocation.
    """

    def __init__(self, model: PreTrainedModel, *, slots: int, max_length: int) -> None:
        _check_supported(model, max_length)
        self._most = slots, max_length
        self._size = 0, min(_FIRST_CAPACITY, max_length)  # slots and positions for which there is memory
        count = int(model.config.get_text_config().num_hidden_layers)
        self._stores = [_SlotLayer(self._size) for _ in range(count)]
        super().__init__(layers=list(self._stores))

    def reserve(self, slot: int, length: int) -> None:
        """Allocate memory for `length` positions of the slots up to this one, unless there is enough."""
        needed = zip(self._size, (slot + 1, length), self._most, strict=True)
        slots, capacity = (now if wanted <= now else min(most, wanted + wanted // 4) for now, wanted, most in needed)
        if (slots, capacity) != self._size:
            self._size = slots, capacity
            for store in self._stores:
                store.grow(self._size)

    def aim(self, slots: Tensor, positions: Tensor) -> None:
        """Set where the next forward pass writes: the slot [N] and position [N] of each token, reserved before."""
        target = _Target(slots, positions)
        for store in self._stores:
            store.target = target

    def read(self, layer: int, slots: Tensor | int, length: int) -> tuple[Tensor, Tensor]:
        """Read keys and values [R, heads, length, head size] of R slots (copied) or the first `slots` ones (a view)."""
        return self._stores[layer].read(slots, length)

    @torch.inference_mode()
    def swap(self, left: Sequence[int], right: Sequence[int], length: int) -> None:
        """Exchange the first `length` positions of slot left[i] and slot right[i]; all slots are distinct."""
        self.reserve(max(*left, *right), length)
        for store in self._stores:
            store.permute([*left, *right], [*right, *left], 0, length)

    @torch.inference_mode()
    def copy(self, source: int, to: int, start: int, end: int) -> None:
        """Copy the positions `start` to `end` of one slot to another."""
        self.reserve(max(source, to), end)
        for store in self._stores:
            store.permute([to], [source], start, end)

    @torch.inference_mode()
    def clear(self) -> None:
        """Overwrite everything with zeros: a mask would not hide a stale value that is not finite."""
        self.reset()


class _SlotLayer(CacheLayerMixin):
    """One layer's keys and values, each [slots, heads, capacity, head size]."""

    def __init__(self, size: tuple[int, int]) -> None:
        super().__init__()
        self._slots, self._capacity = size
        self.target: _Target | None = None
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate with the shapes and type of the first states: [1, heads, N, head size]."""
        self.keys, self.values = (
            states.new_zeros(self._slots, states.shape[1], self._capacity, states.shape[3])
            for states in (key_states, value_states)
        )
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the states [1, heads, N, head size] to the positions of `target`, and return them."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        for store, states in zip(self._pair(), (key_states, value_states), strict=True):
            if self.target is None:
                raise PolicyError("a slot cache was used without SlotCache.aim; call it before each forward pass.")
            index = self.target.index(store.shape[1], store.shape[2])
            store.flatten(0, 2).index_copy_(0, index, states[0].flatten(0, 1))
        return key_states, value_states

    def read(self, slots: Tensor | int, length: int) -> tuple[Tensor, Tensor]:
        """Read as `SlotCache.read`."""
        keys, values = (store[:, :, :length] for store in self._pair())
        if isinstance(slots, int):
            return keys[:slots], values[:slots]
        return keys.index_select(0, slots), values.index_select(0, slots)

    def permute(self, to: list[int], source: list[int], start: int, end: int) -> None:
        """Copy the positions `start` to `end` of the slots `source` to the slots `to`, as if simultaneously."""
        for store in self._pair() if self.is_initialized else ():
            part = store[:, :, start:end]
            picked = part.index_select(0, torch.tensor(source, device=part.device))
            part.index_copy_(0, torch.tensor(to, device=part.device), picked)

    def grow(self, size: tuple[int, int]) -> None:
        """Enlarge to this number of slots and positions, keeping the contents."""
        self._slots, self._capacity = size
        if self.is_initialized:
            self.keys, self.values = (self._grown(store) for store in self._pair())

    def _grown(self, store: Tensor) -> Tensor:
        slots, heads, capacity, width = store.shape
        larger = store.new_zeros(self._slots, heads, self._capacity, width)
        larger[:slots, :, :capacity] = store
        return larger

    def _pair(self) -> tuple[Tensor, Tensor]:
        if self.keys is None or self.values is None:
            raise PolicyError("a slot cache was read before anything was written to it.")
        return self.keys, self.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return (length, offset) for a mask; packed attention makes its own."""
        return query_length, 0

    def get_seq_length(self) -> int:
        """Return 0: each slot has its own length, so the model always receives positions."""
        return 0

    def get_max_length(self) -> int:
        """Return the number of positions for which a slot has room now."""
        return self._capacity

    get_max_cache_shape = get_max_length  # its name before transformers 5.13


def _check_supported(model: PreTrainedModel, max_length: int) -> None:
    """Raise PolicyError unless every layer of the model attends to its whole past through keys and values."""
    name = type(model).__name__
    advice = "Choose a model with ordinary attention in every layer, such as Qwen2, Qwen3 or Llama."
    if not model._supports_attention_backend:  # pyright: ignore[reportPrivateUsage]
        raise PolicyError(
            f"the embedded sampler got {name}, whose attention cannot be replaced; it needs a model that takes its "
            f"attention from the registry of transformers, as all recent ones do. {advice}"
        )
    for number, layer in enumerate(DynamicCache(config=model.config).layers):
        if type(layer) is DynamicLayer:
            continue
        if type(layer) is not DynamicSlidingWindowLayer:
            raise PolicyError(
                f"the embedded sampler got {name}, whose layer {number} keeps a {type(layer).__name__}; it needs "
                f"layers that keep the keys and values of the whole past. {advice}"
            )
        if layer.sliding_window < max_length:
            raise PolicyError(
                f"the embedded sampler got {name}, whose layer {number} sees only the last {layer.sliding_window} "
                f"tokens, with contexts of up to {max_length}; it keeps the whole past of every layer. Set max_length "
                f"to at most {layer.sliding_window}, or choose a model with full attention."
            )
