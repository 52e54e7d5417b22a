import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForTokenClassification,
)

from evoseek.errors import PolicyError, TrainingError
from evoseek.learner import logprobs as logprobs_module
from evoseek.learner.batch import MicroBatch, make_batch
from evoseek.learner.distributed import Ranks
from evoseek.learner.logprobs import LogprobModel, ValueModel, score, with_scores
from evoseek.models.lora import add_adapter
from evoseek.models.policy import Policy, base_of
from evoseek.types import TrainingSample

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


def build(architecture: str) -> PreTrainedModel:
    torch.manual_seed(0)
    match architecture:
        case "llama":
            return LlamaForCausalLM(LlamaConfig(**SIZES)).eval()
        case "gpt2":
            return GPT2LMHeadModel(GPT2Config(vocab_size=23, n_embd=16, n_layer=2, n_head=2)).eval()
        case "gemma2":  # caps its logits softly
            return Gemma2ForCausalLM(Gemma2Config(**SIZES, head_dim=8, sliding_window=4)).eval()
        case _:  # scales its logits
            return CohereForCausalLM(CohereConfig(**SIZES, logit_scale=0.0625)).eval()


def plain(model: PreTrainedModel, sample: TrainingSample, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Logprobs and entropies [T] of a single sample, straight from the model's own logits; 0 off the mask."""
    ids = torch.tensor([sample.token_ids])
    log_p = (model(ids).logits[0, :-1] / temperature).log_softmax(-1)
    mask = torch.tensor(sample.loss_mask)[1:]
    logprobs = log_p.gather(-1, ids[0, 1:, None])[:, 0] * mask
    entropies = -(log_p.exp() * log_p).sum(-1) * mask
    return torch.nn.functional.pad(logprobs, (1, 0)), torch.nn.functional.pad(entropies, (1, 0))


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "gemma2", "cohere"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_of_a_batch_equal_a_plain_forward_of_each_sample(
    architecture: str, temperature: float, make_samples: Callable[..., list[TrainingSample]]
) -> None:
    model, samples = build(architecture), make_samples(6)
    batch = make_batch(samples, model.device)
    inputs = LogprobModel(model, temperature=temperature)(batch)
    for row, sample in enumerate(samples):
        expected = [values[: batch.token_ids.shape[1]] for values in plain(model, sample, temperature)]
        for got, want in zip((inputs.logprobs[row], inputs.entropies[row]), expected, strict=True):
            torch.testing.assert_close(got[: len(want)], want, atol=1e-5, rtol=0)
            assert not got[len(want) :].any()


@pytest.mark.parametrize(
    ("architecture", "fits"), [("llama", True), ("gpt2", True), ("gemma2", False), ("cohere", False)]
)
def test_the_start_up_check_finds_models_whose_logits_are_more_than_their_head(architecture: str, fits: bool) -> None:
    assert LogprobModel(build(architecture)).applies_head == fits


@pytest.mark.parametrize("seed", range(5))
def test_a_model_that_sees_the_future_is_refused(seed: int) -> None:
    torch.manual_seed(seed)
    bert = BertForMaskedLM(
        BertConfig(vocab_size=23, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2)
    ).eval()
    with pytest.raises(PolicyError, match="BertForMaskedLM is not causal"):
        LogprobModel(bert)


def test_a_model_whose_logits_are_all_zero_is_causal() -> None:
    model = build("llama")
    model.lm_head.weight.data.zero_()
    assert LogprobModel(model).applies_head


def test_the_head_never_sees_positions_that_predict_no_action(
    model: PreTrainedModel, make_samples: Callable[..., list[TrainingSample]]
) -> None:
    seen: list[int] = []
    score = LogprobModel(model)
    model.get_output_embeddings().register_forward_hook(lambda _, inputs, __: seen.append(inputs[0].shape[:-1].numel()))
    seen.clear()
    batch = make_batch(make_samples(6), model.device)
    score(batch)
    assert seen == [int(batch.loss_mask.sum())]


@pytest.mark.parametrize("entropy_gradient", [False, True])
def test_chunks_give_the_same_logprobs_and_gradient(
    model: PreTrainedModel,
    make_samples: Callable[..., list[TrainingSample]],
    monkeypatch: pytest.MonkeyPatch,
    entropy_gradient: bool,
) -> None:
    batch = make_batch(make_samples(6), model.device)
    results = []
    for limit in (1 << 24, 23 * 4):  # all at once; four positions at a time
        monkeypatch.setitem(logprobs_module.MAX_LOGITS, "cpu", limit)
        model.zero_grad()
        inputs = LogprobModel(model, entropy_gradient=entropy_gradient)(batch)
        ((inputs.logprobs**2).sum() + inputs.entropies.sum()).backward()
        results.append([inputs.logprobs.detach(), inputs.entropies.detach(), *(p.grad for p in model.parameters())])
        results[-1] = [tensor.clone() for tensor in results[-1]]
    for whole, chunked in zip(*results, strict=True):
        torch.testing.assert_close(whole, chunked, atol=1e-4, rtol=1e-5)


def test_entropies_carry_a_gradient_only_if_asked(
    model: PreTrainedModel, make_samples: Callable[..., list[TrainingSample]]
) -> None:
    """The gradient is that of the formula, written out for each sample."""
    samples = make_samples(4)
    batch = make_batch(samples, model.device)
    assert not LogprobModel(model)(batch).entropies.requires_grad
    LogprobModel(model, temperature=0.7, entropy_gradient=True)(batch).entropies.sum().backward()
    got = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    for sample in samples:
        plain(model, sample, 0.7)[1].sum().backward()
    for have, parameter in zip(got, model.parameters(), strict=True):
        torch.testing.assert_close(have, parameter.grad, atol=1e-5, rtol=1e-4)


def test_the_pass_keeps_far_less_than_the_logits_of_all_tokens(model: PreTrainedModel) -> None:
    """Bytes kept for the backward pass of 512 tokens with a vocabulary of 4,096, chunks of 16 positions."""
    vocabulary, length = 4096, 512
    model.resize_token_embeddings(vocabulary)
    ones = (1.0,) * length
    sample = TrainingSample((1,) * length, (False, *(True,) * (length - 1)), ones, ones)
    batch = make_batch([sample], model.device)
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    forward = LogprobModel(model)
    with pytest.MonkeyPatch.context() as patch, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        patch.setitem(logprobs_module.MAX_LOGITS, "cpu", 16 * vocabulary)
        forward(batch)
    assert sum(kept.values()) < length * vocabulary * 4 / 2


def test_the_rest_of_the_inputs_is_the_batch_s(
    model: PreTrainedModel, make_samples: Callable[..., list[TrainingSample]]
) -> None:
    batch = make_batch(make_samples(3), model.device)
    inputs = LogprobModel(model)(batch)
    names = ("rollout_logprobs", "old_logprobs", "advantages", "loss_mask", "weights", "ref_logprobs")
    assert all(getattr(inputs, name) is getattr(batch, name) for name in names)


# Values


def critic(num_labels: int = 1) -> Qwen2ForTokenClassification:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=23,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        initializer_range=0.3,
        num_labels=num_labels,
    )
    return Qwen2ForTokenClassification(config).eval()


@pytest.mark.parametrize("packed", [True, False])
def test_a_prediction_is_the_value_of_the_state_before_its_action_token(
    packed: bool, make_samples: Callable[..., list[TrainingSample]]
) -> None:
    model, samples = critic(), make_samples(6, shared=18)
    forward = ValueModel(model)
    if not packed:
        forward.packing_limit = 0
    inputs = forward(make_batch(samples, model.device))
    (inputs.predictions**2).sum().backward()
    got = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    for number, sample in enumerate(samples):
        values = model(torch.tensor([sample.token_ids])).logits[0, :, 0]
        expected = torch.cat([torch.zeros(1), values[:-1]]) * torch.tensor(sample.loss_mask)
        (expected**2).sum().backward()
        row = inputs.predictions[number]
        torch.testing.assert_close(row[: len(expected)], expected[: len(row)], atol=1e-5, rtol=1e-5)
        assert not row[~inputs.loss_mask[number]].any()
    scale = max(parameter.grad.abs().max().item() for parameter in model.parameters())
    for have, parameter in zip(got, model.parameters(), strict=True):
        torch.testing.assert_close(have, parameter.grad, atol=1e-5 * scale, rtol=0)


def test_the_rest_of_the_critic_s_inputs_is_the_batch_s(make_samples: Callable[..., list[TrainingSample]]) -> None:
    batch = make_batch(make_samples(3), torch.device("cpu"))
    inputs = ValueModel(critic())(batch)
    assert inputs.predictions.dtype == torch.float32
    assert inputs.values is batch.values
    assert inputs.returns is batch.returns
    assert inputs.weights is batch.weights


def test_a_model_without_a_head_for_one_value_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"Qwen2ForTokenClassification with 3 labels.*one label.*load_critic"):
        ValueModel(critic(num_labels=3))


Make = Callable[..., list[TrainingSample]]


def scored(model: PreTrainedModel, sample: TrainingSample, temperature: float = 1.0) -> torch.Tensor:
    """[T] logprobs of one sample."""
    with torch.no_grad():
        return plain(model, sample, temperature)[0]


def check(rows: list[tuple[float, ...]], expected: list[torch.Tensor]) -> None:
    assert len(rows) == len(expected)
    for row, want in zip(rows, expected, strict=True):
        torch.testing.assert_close(torch.tensor(row), want, atol=1e-5, rtol=0)


@pytest.mark.parametrize("token_budget", [1, 30, 10**6])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_scores_are_a_plain_forward_pass_in_the_samples_order(
    model: PreTrainedModel, make_samples: Make, token_budget: int, temperature: float
) -> None:
    samples = make_samples(9)
    samples.append(samples[2])  # the same object twice
    samples.insert(4, replace(samples[0], loss_mask=(False,) * len(samples[0].loss_mask)))  # nothing to score
    rows = score(LogprobModel(model, temperature=temperature), samples, token_budget=token_budget)
    check(rows, [scored(model, sample, temperature) for sample in samples])
    assert [len(row) for row in rows] == [len(sample.token_ids) for sample in samples]
    assert not any(rows[4])


def test_no_samples_and_no_actions(model: PreTrainedModel, make_samples: Make) -> None:
    silent = replace(make_samples(1)[0], loss_mask=(False,) * len(make_samples(1)[0].loss_mask))
    assert score(LogprobModel(model), [], token_budget=100) == []
    assert score(LogprobModel(model), [silent], token_budget=100) == [(0.0,) * len(silent.token_ids)]


def test_scoring_touches_no_weight_and_leaves_no_gradient(model: PreTrainedModel, make_samples: Make) -> None:
    before = copy.deepcopy(model.state_dict())
    with_scores("ref_logprobs", make_samples(5), LogprobModel(model), token_budget=40)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())


def test_each_function_fills_its_own_field(model: PreTrainedModel, make_samples: Make) -> None:
    samples = make_samples(4)
    other = copy.deepcopy(model)
    other.lm_head.weight.data *= 1.5
    filled = with_scores("ref_logprobs", samples, LogprobModel(other), token_budget=50)
    filled = with_scores("old_logprobs", filled, LogprobModel(model), token_budget=50)
    check([sample.ref_logprobs for sample in filled], [scored(other, sample) for sample in samples])
    check([sample.old_logprobs for sample in filled], [scored(model, sample) for sample in samples])
    bare = [replace(sample, old_logprobs=None) for sample in samples]
    assert [replace(sample, ref_logprobs=None, old_logprobs=None) for sample in filled] == bare


def test_values_are_the_heads_at_the_state_before_each_action(model: PreTrainedModel, make_samples: Make) -> None:
    torch.manual_seed(1)
    config = copy.deepcopy(model.config)
    config.num_labels = 1
    critic = Qwen2ForTokenClassification(config).eval()
    samples = make_samples(6)
    for sample in with_scores("values", samples, ValueModel(critic), token_budget=40):
        with torch.no_grad():
            heads = critic(torch.tensor([sample.token_ids])).logits[0, :, 0]
        expected = [float(heads[t - 1]) if on else 0.0 for t, on in enumerate(sample.loss_mask)]
        assert sample.values == pytest.approx(expected, abs=1e-5)


def test_the_trained_model_with_its_adapter_off_is_the_reference(model: PreTrainedModel, make_samples: Make) -> None:
    pytest.importorskip("peft")
    samples = make_samples(5)
    expected = [scored(model, sample) for sample in samples]
    policy = add_adapter(Policy(model, None, "made"), "solver", rank=2, alpha=8.0)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    forward = LogprobModel(model)
    rows = score(forward, samples, token_budget=60, active=base_of(policy).active)
    check(rows, expected)
    adapted = score(forward, samples, token_budget=60, active=policy.active)
    assert (
        max(abs(a - b) for left, right in zip(rows, adapted, strict=True) for a, b in zip(left, right, strict=True))
        > 0.1
    )
    with policy.active():
        check(adapted, [scored(model, sample) for sample in samples])


def test_the_policy_is_active_in_every_pass_and_no_longer(model: PreTrainedModel, make_samples: Make) -> None:
    events: list[str] = []

    @contextmanager
    def active() -> Iterator[None]:
        events.append("on")
        yield
        events.append("off")

    model.model.register_forward_hook(lambda *_: events.append("recorded" if torch.is_grad_enabled() else "pass"))
    forward = LogprobModel(model)
    events.clear()
    score(forward, make_samples(3), token_budget=1, active=active)
    assert (events[0], events[-1]) == ("on", "off")
    assert set(events[1:-1]) == {"pass"}


class Scripted(Ranks):
    """One of two ranks; `gather` gives what the ranks are scripted to have said, with this one's own in its place."""

    def gather(self, value: object) -> list[object]:
        said.setdefault(self.rank, value)
        return [said.get(rank, []) for rank in range(self.size)]


said: dict[int, object] = {}


def test_ranks_share_the_work_and_make_equally_many_passes(model: PreTrainedModel, make_samples: Make) -> None:
    said.clear()
    samples = make_samples(5)
    passes: list[int] = []
    forward = LogprobModel(model)
    model.model.register_forward_hook(lambda *_: passes.append(1))
    results = []
    for rank in (1, 0):  # five micro-batches: three for rank 0, two and one for company for rank 1
        passes.clear()
        try:
            results.append(score(forward, samples, token_budget=1, ranks=Scripted(rank, 2, torch.device("cpu"))))
        except ValueError:
            assert rank == 1  # rank 0 had not spoken yet
        assert len(passes) == 3
    check(results[0], [scored(model, sample) for sample in samples])


def memory_for(forward: LogprobModel, tokens: int) -> list[int]:
    """Passes over more padded tokens than that run out of memory; the sizes of those tried."""
    tried: list[int] = []

    def check(_: object, arguments: tuple[MicroBatch]) -> None:
        tried.append(arguments[0].token_ids.numel())
        if tried[-1] > tokens:
            raise torch.OutOfMemoryError("no room")

    forward.register_forward_pre_hook(check)
    return tried


def test_when_memory_runs_out_smaller_parts_give_the_same_scores(model: PreTrainedModel, make_samples: Make) -> None:
    samples = make_samples(9)
    forward = LogprobModel(model)
    expected = [scored(model, sample) for sample in samples]
    tried = memory_for(forward, 40)
    check(score(forward, samples, token_budget=160), expected)
    assert tried[0] > 40 >= max(tried[-4:])


def test_a_sample_too_large_for_memory_is_told_with_the_remedy(model: PreTrainedModel, make_samples: Make) -> None:
    forward = LogprobModel(model)
    tried = memory_for(forward, 0)
    with pytest.raises(TrainingError, match=r"1 samples \(no room\)\. Lower learner\.token_budget"):
        score(forward, make_samples(4), token_budget=200)
    assert len(tried) > 1
    with pytest.raises(TrainingError, match=r"no room"):
        score(forward, make_samples(4), token_budget=200, ranks=Scripted(0, 2, torch.device("cpu")))


def test_bfloat16_stays_near(model: PreTrainedModel, make_samples: Make) -> None:
    samples = make_samples(4)
    forward = LogprobModel(model)
    exact, rough = (score(forward, samples, token_budget=100, bf16=bf16) for bf16 in (False, True))
    assert exact != rough
    for left, right in zip(exact, rough, strict=True):
        assert left == pytest.approx(right, abs=0.2)
