from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.doubles.learners import learner_of
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from evoseek.learner.batch import make_batch, split_by_tokens, tree_order
from evoseek.learner.logprobs import LogprobModel
from evoseek.learner.packing import causal_by_products, packing_limit
from evoseek.loss.base import Totals
from evoseek.loss.clipped import ClippedLoss
from evoseek.types import TrainingSample

Make = Callable[..., list[TrainingSample]]
SIZES = {
    "vocab_size": 23,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WINDOW = 20


def build(architecture: str, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    torch.manual_seed(0)
    match architecture:
        case "qwen2":
            model = Qwen2ForCausalLM(Qwen2Config(**SIZES))
        case "llama":
            model = LlamaForCausalLM(LlamaConfig(**SIZES))
        case "qwen3":
            model = Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=8))
        case "gpt2":  # has no operation that rounds to float32
            config = GPT2Config(
                vocab_size=23, n_embd=16, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=2, initializer_range=0.3
            )
            model = GPT2LMHeadModel(config)
        case "mistral":  # slides over a window
            model = MistralForCausalLM(MistralConfig(**SIZES, sliding_window=WINDOW))
        case _:  # caps its attention softly
            model = Gemma2ForCausalLM(
                Gemma2Config(**SIZES, head_dim=8, attn_logit_softcapping=5.0, attn_implementation="eager")
            )
    return model.eval().to(dtype)


def gradients(model: PreTrainedModel) -> list[torch.Tensor]:
    result = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    return result


def each_by_itself(model: PreTrainedModel, samples: list[TrainingSample]) -> list[torch.Tensor]:
    """The logprobs of each sample's actions from the model's own logits; leaves the gradient of their squares' sum."""
    results = []
    for sample in samples:
        ids = torch.tensor(sample.token_ids)
        log_p = model(ids[None], use_cache=False).logits[0, :-1].log_softmax(-1)
        logprobs = log_p.gather(-1, ids[1:, None])[:, 0][torch.tensor(sample.loss_mask)[1:]]
        (logprobs**2).sum().backward()
        results.append(logprobs.detach())
    return results


def together(forward: LogprobModel, samples: list[TrainingSample]) -> list[torch.Tensor]:
    """The same from one micro-batch, in whose row the samples lie in the order of their tree."""
    order = tree_order([sample.token_ids for sample in samples])
    inputs = forward(make_batch([samples[number] for number in order], torch.device("cpu")))
    (inputs.logprobs**2).sum().backward()
    found = {n: row[mask].detach() for n, row, mask in zip(order, inputs.logprobs, inputs.loss_mask, strict=True)}
    return [found[number] for number in range(len(samples))]


def largest_difference(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> float:
    """Relative to the largest number."""
    scale = max(tensor.abs().max().item() for tensor in theirs)
    return max((a - b).abs().max().item() for a, b in zip(ours, theirs, strict=True)) / scale


@pytest.mark.parametrize(
    ("architecture", "dtype", "packs", "tolerance"),
    [
        ("qwen2", torch.float32, True, 1e-5),
        ("llama", torch.float32, True, 1e-5),
        ("qwen3", torch.float32, True, 1e-5),
        ("gpt2", torch.float32, True, 1e-5),
        ("gpt2", torch.float64, True, 1e-10),
        ("gemma2", torch.float32, False, 1e-5),
    ],
)
def test_a_packed_row_with_shared_prompts_equals_each_sample_by_itself(
    architecture: str, dtype: torch.dtype, packs: bool, tolerance: float, make_samples: Make
) -> None:
    model, samples = build(architecture, dtype), make_samples(8, shared=18)
    forward = LogprobModel(model)
    assert (forward.packing_limit > 0) == packs
    (part,) = split_by_tokens(samples, 10**6)
    assert len(make_batch(part, torch.device("cpu")).row.pieces) > len(samples)
    expected = each_by_itself(model, samples)
    expected_gradients = gradients(model)
    assert largest_difference(together(forward, samples), expected) < tolerance
    assert largest_difference(gradients(model), expected_gradients) < tolerance


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 9), st.integers(0, 1000), st.sampled_from([0, 3, 16, 25]), st.integers(1, 200))
def test_any_split_into_micro_batches_gives_the_same_gradient(
    make_samples: Make, count: int, seed: int, shared: int, budget: int
) -> None:
    model, samples = build("gpt2", torch.float64), make_samples(count, seed, shared)
    each_by_itself(model, samples)
    expected = gradients(model)
    forward = LogprobModel(model)
    for part in split_by_tokens(samples, budget):
        together(forward, part)
    assert largest_difference(gradients(model), expected) < 1e-10


@pytest.mark.parametrize("shared", [0, 18])
def test_no_sample_sees_another(model: PreTrainedModel, make_samples: Make, shared: int) -> None:
    """Other tokens in one sample, behind the prompt that it shares, change no bit of the others' logprobs."""
    samples, forward = make_samples(8, shared=shared), LogprobModel(model)
    for number in (0, 3):
        changed = list(samples)
        prompt = samples[number].loss_mask.index(True)
        ids = [*samples[number].token_ids[:prompt], *((t + 1) % 23 for t in samples[number].token_ids[prompt:])]
        changed[number] = replace(samples[number], token_ids=tuple(ids))
        before, after = together(forward, samples), together(forward, changed)
        for other, (one, two) in enumerate(zip(before, after, strict=True)):
            assert torch.equal(one, two) == (other != number)


def test_what_is_shared_is_computed_once_and_scored_once(model: PreTrainedModel) -> None:
    """Four samples of 40 tokens, all but 18 of them actions: two equal ones, one that differs in its last token, so
    that the two predict from the same state, and one that goes its own way after 20 tokens: 40 + 1 + 20 tokens. Of 21
    predictions of each, those of the first two are the same, the third has one of its own, the fourth 20."""
    ids = tuple(n % 23 for n in range(40))
    paths = ids, ids, (*ids[:-1], 5), (*ids[:20], *(7,) * 20)
    samples = [of_path(path, 19, -1.0) for path in paths]
    forward = LogprobModel(model)
    shapes: list[int] = []
    for module in (model.model.norm, model.lm_head):
        module.register_forward_hook(lambda _, inputs, __: shapes.append(inputs[0].shape[:-1].numel()))
    together(forward, samples)
    assert shapes == [40 + 1 + 20, 21 + 1 + 20]


def of_path(ids: tuple[int, ...], prompt: int, rollout_logprob: float, observed: int = 0) -> TrainingSample:
    """A sample whose tokens after the prompt are actions, all but `observed` of them in the middle."""
    first = (prompt + len(ids)) // 2
    mask = tuple(n >= prompt and not first <= n < min(first + observed, len(ids) - 1) for n in range(len(ids)))
    advantages = tuple((-1.0) ** n * (1 + rollout_logprob) if on else 0.0 for n, on in enumerate(mask))
    return TrainingSample(ids, mask, tuple(rollout_logprob if on else 0.0 for on in mask), advantages)


@st.composite
def trees(draw: st.DrawFn) -> list[TrainingSample]:
    """Samples each of which is the beginning of an earlier one and what it adds, with actions, rollout logprobs and
    advantages of its own; some are equal, or only a beginning."""
    samples: list[TrainingSample] = []
    rng = draw(st.randoms(use_true_random=False))
    for number in range(draw(st.integers(1, 7))):
        trunk = rng.choice(samples).token_ids if samples else ()
        kept = trunk[: rng.choice([0, rng.randint(0, len(trunk)), rng.randint(0, len(trunk)), len(trunk)])]
        added = rng.choice([0, rng.randint(1, 5), rng.randint(16, 40)])
        ids = (*kept, *(rng.randrange(23) for _ in range(max(added, 2 - len(kept)))))
        sample = of_path(ids, rng.randint(1, len(ids) - 1), rng.uniform(-4.0, -2.0), rng.randint(0, 9))
        samples.append(replace(sample, weight=1.0 + number))
    return samples


@settings(max_examples=10, deadline=None)
@given(trees(), st.sampled_from([100, 10**6]))
def test_a_tree_has_the_loss_and_the_gradient_of_padded_rows(samples: list[TrainingSample], budget: int) -> None:
    found: list[tuple[float, list[torch.Tensor]]] = []
    for packed in (True, False):
        model = build("gpt2", torch.float64)
        forward = LogprobModel(model)
        if not packed:
            forward.packing_limit = 0
        learner = learner_of(
            forward, loss=ClippedLoss(clip_low=9, clip_high=999), learning_rate=0.1, token_budget=budget
        )
        totals = Totals(tokens=sum(sum(sample.loss_mask) for sample in samples), sequences=len(samples))
        found.append((learner.accumulate(samples, totals)["loss"], gradients(model)))
    (loss, ours), (expected, theirs) = found
    assert loss == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert largest_difference(ours, theirs) < 1e-6


def test_samples_longer_than_a_sliding_window_get_padded_rows(make_samples: Make) -> None:
    """Both ways are right; which one it was shows in the shape of what goes through the model."""
    model = build("mistral")
    forward = LogprobModel(model)
    assert forward.packing_limit == WINDOW
    shapes: list[int] = []
    model.model.norm.register_forward_hook(lambda _, inputs, __: shapes.append(len(inputs[0])))
    for samples, rows in ((make_samples(6), {1}), (make_samples(6, shared=22), {6})):
        expected = each_by_itself(model, samples)
        expected_gradients = gradients(model)
        shapes.clear()
        assert largest_difference(together(forward, samples), expected) < 1e-5
        assert largest_difference(gradients(model), expected_gradients) < 1e-5
        assert set(shapes) == rows


def test_attention_that_is_capped_is_never_packed_however_little_it_shows() -> None:
    config = Gemma2Config(**SIZES, head_dim=8, attn_logit_softcapping=1e4, attn_implementation="eager")
    assert LogprobModel(Gemma2ForCausalLM(config).eval()).packing_limit == 0


def test_a_model_with_a_layer_that_attends_in_a_way_of_its_own_is_not_packed(model: PreTrainedModel) -> None:
    class Silent(torch.nn.Module):
        def forward(self, hidden_states: torch.Tensor, **_: object) -> tuple[torch.Tensor, None]:
            return torch.zeros_like(hidden_states), None

    model.model.layers[1].self_attn = Silent()
    assert LogprobModel(model).packing_limit == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_model_that_does_not_look_at_the_positions_it_is_given_is_not_packed(
    model: PreTrainedModel, dtype: torch.dtype
) -> None:
    """Nothing is raised and attention is ours; only the numbers tell."""

    def body(*, input_ids: torch.Tensor, position_ids: torch.Tensor | None = None, **others: object) -> torch.Tensor:
        return model.base_model(input_ids=input_ids, use_cache=False, **others).last_hidden_state

    assert packing_limit(body, model.to(dtype)) == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "gpt2"])
def test_rounding_is_no_reason_not_to_pack(architecture: str, dtype: torch.dtype) -> None:
    """Nor are weights changed by the passes in float32."""
    model = build(architecture, dtype)
    before = {name: (weight.data_ptr(), weight.clone()) for name, weight in model.named_parameters()}
    assert LogprobModel(model).packing_limit > 0
    for name, weight in model.named_parameters():
        place, values = before[name]
        assert (weight.data_ptr(), weight.dtype) == (place, dtype)
        assert torch.equal(weight, values)


def test_what_bfloat16_makes_of_the_states_is_no_reason_either(model: PreTrainedModel) -> None:
    """A run would be packed after one step and padded after the next, and would not resume to the same bits."""

    def body(*, input_ids: torch.Tensor, packed_pass: object = None, **others: object) -> torch.Tensor:
        states = model.base_model(input_ids=input_ids, packed_pass=packed_pass, use_cache=False, **others)
        found = states.last_hidden_state
        return found + 3.0 if packed_pass and found.dtype == torch.bfloat16 else found

    assert packing_limit(body, model.to(torch.bfloat16)) > 0


def test_what_rounding_does_at_control_tokens_is_no_reason_either(model: PreTrainedModel) -> None:
    """There some real models multiply it until nothing else is left: here the states are one thing in a packed row,
    another in any other pass."""

    def body(*, input_ids: torch.Tensor, packed_pass: object = None, **others: object) -> torch.Tensor:
        states = model.base_model(input_ids=input_ids, packed_pass=packed_pass, use_cache=False, **others)
        control = ((input_ids < 5) | (input_ids > 18)).unsqueeze(-1)
        return states.last_hidden_state.masked_fill(control, 3.0 if packed_pass else -3.0)

    assert packing_limit(body, model.to(torch.bfloat16)) > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_whose_samples_see_each_other_is_not_packed(model: PreTrainedModel, dtype: torch.dtype) -> None:
    def body(*, input_ids: torch.Tensor, packed_pass: object = None, **others: object) -> torch.Tensor:
        states = model.base_model(input_ids=input_ids, packed_pass=packed_pass, use_cache=False, **others)
        leak = 0.5 if packed_pass else 0.0
        return states.last_hidden_state + leak * states.last_hidden_state.roll(6, dims=1)

    model.to(dtype)
    assert packing_limit(body, model) == 0


def test_a_window_that_no_layer_uses_limits_nothing() -> None:
    unused = Qwen2ForCausalLM(Qwen2Config(**SIZES, sliding_window=WINDOW, use_sliding_window=False)).eval()
    used = Qwen2ForCausalLM(
        Qwen2Config(**SIZES, sliding_window=WINDOW, use_sliding_window=True, max_window_layers=1)
    ).eval()
    assert LogprobModel(unused).packing_limit > 1 << 40
    assert LogprobModel(used).packing_limit == WINDOW
    assert LogprobModel(unused).layout == "Samples are packed into one row, without padding."
    assert LogprobModel(used).layout == "Samples of up to 20 tokens are packed into one row, without padding."
    assert "cannot be packed" in LogprobModel(build("gemma2")).layout


def test_the_model_has_its_own_attention_back_after_a_pass(model: PreTrainedModel, make_samples: Make) -> None:
    usual = model.config._attn_implementation
    together(LogprobModel(model), make_samples(2))
    assert model.config._attn_implementation == usual


@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (40, 70), (300, 300), (20, 1030), (600, 1100)])
def test_attention_by_products_is_causal_attention_up_to_rounding(queries: int, keys: int) -> None:
    """Outputs and gradients, in blocks and not, kept for the backward pass and computed again."""
    torch.manual_seed(0)
    inputs = [torch.randn(heads, n, 16) for heads, n in ((6, queries), (2, keys), (2, keys))]
    exact = [values.bfloat16().float()[None].requires_grad_() for values in inputs]
    rounded = [values.bfloat16().requires_grad_() for values in inputs]
    expected = scaled_dot_product_attention(
        *exact, attn_mask=causal_lower_right(queries, keys), scale=0.3, enable_gqa=True
    )
    found = causal_by_products(*rounded, 0.3)
    assert found.dtype == torch.bfloat16
    direction = torch.randn(6, queries, 16)
    expected.backward(direction[None])
    found.backward(direction)
    for own, other in [(found, expected), *((own.grad, other.grad) for own, other in zip(rounded, exact, strict=True))]:
        assert own is not None
        assert other is not None
        assert (own.float() - other[0]).norm() < 0.01 * other.norm()
