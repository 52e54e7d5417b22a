"""What can be read by rows, and what is left to `load_policy`. That the rows are right is tested in learner."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen2Config, Qwen2ForCausalLM

from evoseek.models.deferred_weights import load_deferred
from evoseek.models.load import load_policy, save_policy
from evoseek.models.lora import add_adapter
from evoseek.models.policy import Policy


@pytest.fixture
def saved(tmp_path):
    """A random policy whose head is tied to its embeddings."""
    tokenizer = load_policy("tiny").tokenizer
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = Qwen2Config(vocab_size=len(tokenizer), num_key_value_heads=1, tie_word_embeddings=True, **sizes)
    save_policy(Policy(Qwen2ForCausalLM(config), tokenizer, "made"), tmp_path / "policy")
    return tmp_path / "policy"


def test_a_policy_has_everything_but_its_weights(saved):
    whole, deferred = load_policy(str(saved)), load_deferred(str(saved))
    assert deferred.deferred_weights == (saved / "model.safetensors",)
    assert all(parameter.is_meta for parameter in deferred.model.parameters())
    expected, got = (dict(policy.model.named_buffers()) for policy in (whole, deferred))
    assert expected.keys() == got.keys() == {"model.rotary_emb.inv_freq", "model.rotary_emb.original_inv_freq"}
    assert all(torch.equal(tensor, expected[name]) for name, tensor in got.items())
    assert (deferred.name, deferred.adapter, deferred.model.training) == (whole.name, whole.adapter, False)
    assert deferred.model.config.to_dict() == whole.model.config.to_dict()
    assert deferred.model.get_output_embeddings().weight is deferred.model.get_input_embeddings().weight
    assert deferred.tokenizer.get_vocab() == whole.tokenizer.get_vocab()


def changed(weights):
    """Ways in which tensors in a file are not simply those of the model."""
    some = next(iter(weights))
    yield {name: tensor for name, tensor in weights.items() if name != some}
    yield {**weights, some: weights[some][:-1].clone()}
    yield {**weights, some: weights[some].to(torch.int8)}
    yield {**weights, "lm_head.weight": weights["model.embed_tokens.weight"] + 1}  # of a head that is tied
    yield {f"other.{name}": tensor for name, tensor in weights.items()}


@pytest.mark.parametrize("way", range(5))
def test_files_with_other_tensors_are_left_to_be_read_whole(saved, way):
    path = saved / "model.safetensors"
    save_file(list(changed(load_file(path)))[way], path, metadata={"format": "pt"})
    assert load_deferred(str(saved)) is None


def test_tensors_that_the_model_does_not_know_are_ignored(saved):
    path = saved / "model.safetensors"
    save_file({**load_file(path), "model.rotary_emb.inv_freq": torch.ones(3)}, path, metadata={"format": "pt"})
    assert load_deferred(str(saved)).deferred_weights == (path,)


def test_adapters_damaged_files_and_quantized_weights_are_left_to_be_read_whole(saved, tmp_path):
    policy = add_adapter(load_policy(str(saved)), "policy", rank=2, alpha=4.0, seed=0)
    save_policy(policy, tmp_path / "adapter")
    assert load_deferred(str(tmp_path / "adapter")) is None
    config = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": "fp8"}}))
    assert load_deferred(str(saved)) is None
    (saved / "config.json").write_text(json.dumps(config))
    assert load_deferred(str(saved)) is not None
    (saved / "model.safetensors").write_bytes(b"nothing")
    assert load_deferred(str(saved)) is None
    (saved / "model.safetensors").unlink()
    assert load_deferred(str(saved)) is None
