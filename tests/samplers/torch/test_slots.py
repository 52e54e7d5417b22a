"""Which models fit the slots, and that what is exchanged or grown keeps its contents."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from evoseek.errors import PolicyError
from evoseek.samplers.torch.packed import Span, packed_logits
from evoseek.samplers.torch.slots import SlotCache

SIZES = {
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
}


def qwen2(**changes: object) -> PreTrainedModel:
    torch.manual_seed(0)
    return Qwen2ForCausalLM(Qwen2Config(**{**SIZES, **changes})).eval()


def full_logits(model: PreTrainedModel, ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return model(torch.tensor([ids])).logits[0, -1]


def packed(model: PreTrainedModel, cache: SlotCache, *spans: Span) -> torch.Tensor:
    return packed_logits(model, cache, spans)


@pytest.mark.parametrize(
    "model",
    [
        qwen2(),
        qwen2(num_key_value_heads=4),
        Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=8)).eval(),
        MistralForCausalLM(MistralConfig(**SIZES, sliding_window=None)).eval(),
        GPT2LMHeadModel(GPT2Config(vocab_size=32, n_embd=16, n_layer=2, n_head=2, n_positions=64)).eval(),
    ],
    ids=["qwen2", "qwen2 without groups", "qwen3", "mistral", "gpt2"],
)
def test_packed_spans_give_the_logits_of_whole_passes(model: PreTrainedModel):
    """Slots 3 and 1 begin; then 1 decodes while 3 adds a little, 0 begins long and 2 with one token."""
    cache = SlotCache(model, slots=4, max_length=64)
    a, b, c = [3, 1, 4, 1, 5], [9, 2, 6], list(range(30))
    first = packed(model, cache, Span(1, 0, b), Span(3, 0, a))
    assert torch.allclose(first, torch.stack([full_logits(model, b), full_logits(model, a)]), atol=1e-5)
    second = packed(model, cache, Span(1, 3, [7]), Span(2, 0, [8]), Span(3, 5, [1, 2]), Span(0, 0, c))
    wanted = [full_logits(model, ids) for ids in ([*b, 7], [8], [*a, 1, 2], c)]
    assert torch.allclose(second, torch.stack(wanted), atol=1e-5)


class Shapes(TorchDispatchMode):
    """Collects the shapes of all that is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[int, ...]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.seen |= {tuple(item.shape) for item in tree_leaves(result) if isinstance(item, torch.Tensor)}
        return result


@pytest.mark.parametrize("new", [1, 3])
def test_heads_that_share_keys_and_values_do_not_copy_them(new: int):
    """3 slots of 11 positions, 2 heads of keys and values of size 4 under 4 query heads: [3, 4, 11, 4] never occurs."""
    model = qwen2()
    cache = SlotCache(model, slots=3, max_length=64)
    packed(model, cache, *(Span(slot, 0, [1] * (11 - new)) for slot in range(3)))
    with Shapes() as shapes:
        packed(model, cache, *(Span(slot, 11 - new, [2] * new) for slot in range(3)))
    assert (3, 2, 11, 4) in shapes.seen
    assert (3, 4, 11, 4) not in shapes.seen


def test_the_model_keeps_its_own_attention():
    model = qwen2()
    usual = model.config._attn_implementation
    packed(model, SlotCache(model, slots=1, max_length=64), Span(0, 0, [1, 2]))
    assert model.config._attn_implementation == usual
    with pytest.raises(IndexError):
        packed(model, SlotCache(model, slots=1, max_length=64), Span(0, 0, [99, 2]))
    assert model.config._attn_implementation == usual


def test_slots_that_are_exchanged_go_on_where_they_were():
    model = qwen2()
    cache = SlotCache(model, slots=5, max_length=64)
    a, b, c = [1, 2, 3], [4, 5], [6, 7, 8, 9]
    packed(model, cache, Span(4, 0, b), Span(0, 0, a), Span(3, 0, c))
    cache.swap([1, 0], [4, 3], 4)  # b to 1, c to 0, a to 3
    logits = packed(model, cache, Span(0, 4, [1]), Span(1, 2, [1]), Span(3, 3, [1]))
    wanted = [full_logits(model, [*ids, 1]) for ids in (c, b, a)]
    assert torch.allclose(logits, torch.stack(wanted), atol=1e-5)


def test_room_grows_and_keeps_what_is_held():
    model = qwen2()
    cache = SlotCache(model, slots=2, max_length=700)
    ids = [number % 32 for number in range(700)]
    packed(model, cache, Span(1, 0, ids[:200]))
    assert cache.layers[0].get_max_length() == 256
    packed(model, cache, Span(1, 200, ids[200:400]))
    assert cache.layers[0].get_max_length() == 500  # and a quarter more
    logits = packed(model, cache, Span(1, 400, ids[400:]))
    assert cache.layers[0].get_max_length() == 700
    assert torch.allclose(logits[0], full_logits(model, ids), atol=1e-5)


def test_memory_is_taken_for_the_slots_and_positions_in_use_and_the_bits_do_not_depend_on_it():
    model = qwen2()
    cache, whole = SlotCache(model, slots=500, max_length=1024), SlotCache(model, slots=500, max_length=1024)
    whole.reserve(499, 1024)
    for spans in ([Span(0, 0, [1] * 300)], [Span(0, 300, [2]), Span(3, 0, [4, 5])], [Span(3, 2, [6]), Span(7, 0, [9])]):
        spans = sorted(spans, key=lambda span: (len(span.ids), span.slot))
        assert torch.equal(packed(model, cache, *spans), packed(model, whole, *spans))
    cache.copy(0, 20, 0, 300)
    cache.swap([1], [30], 300)
    keys = cache.read(0, 31, 301)[0]
    assert torch.equal(keys[20, :, :300], whole.read(0, 1, 300)[0][0])
    assert keys[20:].untyped_storage().nbytes() < 40 * 2 * 376 * 4 * 4  # 38 slots, 2 heads, 375 positions of 4 numbers


def test_a_window_shorter_than_the_contexts_is_refused_and_a_longer_one_is_not():
    model = qwen2(use_sliding_window=True, sliding_window=100, max_window_layers=1)
    with pytest.raises(PolicyError, match=r"layer 1 sees only the last 100 tokens.*at most 100"):
        SlotCache(model, slots=1, max_length=101)
    cache = SlotCache(model, slots=1, max_length=100)
    ids = [number % 32 for number in range(90)]
    assert torch.allclose(packed(model, cache, Span(0, 0, ids))[0], full_logits(model, ids), atol=1e-5)


def test_a_model_without_keys_and_values_is_refused():
    model = MambaForCausalLM(MambaConfig(vocab_size=32, hidden_size=16, state_size=4, num_hidden_layers=1))
    with pytest.raises(PolicyError, match="such as Qwen2"):
        SlotCache(model, slots=1, max_length=64)
