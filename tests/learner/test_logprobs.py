from collections.abc import Callable

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
)

from evoseek.errors import PolicyError
from evoseek.learner import logprobs as logprobs_module
from evoseek.learner.batch import pad
from evoseek.learner.logprobs import LogprobModel
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
def test_logprobs_in_a_padded_batch_equal_a_plain_forward_of_each_sample(
    architecture: str, temperature: float, make_samples: Callable[..., list[TrainingSample]]
) -> None:
    model, samples = build(architecture), make_samples(6)
    batch = pad(samples, model.device)
    logprobs, entropies = LogprobModel(model, temperature=temperature)(batch.token_ids, batch.loss_mask)
    for row, sample in enumerate(samples):
        expected = [values[: batch.token_ids.shape[1]] for values in plain(model, sample, temperature)]
        for got, want in zip((logprobs[row], entropies[row]), expected, strict=True):
            torch.testing.assert_close(got[: len(want)], want, atol=1e-5, rtol=0)
            assert not got[len(want) :].any()


@pytest.mark.parametrize(
    ("architecture", "fits"), [("llama", True), ("gpt2", True), ("gemma2", False), ("cohere", False)]
)
def test_the_start_up_check_finds_models_whose_logits_are_more_than_their_head(architecture: str, fits: bool) -> None:
    model = build(architecture)
    assert (LogprobModel(model).head is model.get_output_embeddings()) == fits


def test_a_model_that_sees_the_future_is_refused() -> None:
    bert = BertForMaskedLM(
        BertConfig(vocab_size=23, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2)
    ).eval()
    with pytest.raises(PolicyError, match="BertForMaskedLM is not causal"):
        LogprobModel(bert)


def test_the_head_never_sees_positions_that_predict_no_action(
    model: PreTrainedModel, make_samples: Callable[..., list[TrainingSample]]
) -> None:
    seen: list[int] = []
    score = LogprobModel(model)
    model.get_output_embeddings().register_forward_hook(lambda _, inputs, __: seen.append(inputs[0].shape[:-1].numel()))
    batch = pad(make_samples(6), model.device)
    score(batch.token_ids, batch.loss_mask)
    assert seen == [int(batch.loss_mask.sum())]


def test_chunks_give_the_same_logprobs_and_gradient(
    model: PreTrainedModel, make_samples: Callable[..., list[TrainingSample]], monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = pad(make_samples(6), model.device)
    results = []
    for limit in (1 << 24, 23 * 4):  # all at once; four positions at a time
        monkeypatch.setattr(logprobs_module, "MAX_LOGITS", limit)
        model.zero_grad()
        logprobs, entropies = LogprobModel(model)(batch.token_ids, batch.loss_mask)
        (logprobs**2).sum().backward()
        results.append([logprobs.detach(), entropies, *(p.grad.clone() for p in model.parameters())])
    for whole, chunked in zip(*results, strict=True):
        torch.testing.assert_close(whole, chunked, atol=1e-4, rtol=1e-5)
