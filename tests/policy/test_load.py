"""Loading policies: by directory, with their own tokenizer, and clear errors for what is none."""

from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from evoseek.errors import PolicyError
from evoseek.policy.load import Policy, load_policy, save_policy
from evoseek.policy.tiny_tokenizer import tiny_tokenizer

SIZES = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


def made(kind: str) -> Policy:
    tokenizer = tiny_tokenizer()
    torch.manual_seed(0)
    sizes = SIZES | {"vocab_size": len(tokenizer), "num_key_value_heads": 1}
    model = LlamaForCausalLM(LlamaConfig(**sizes)) if kind == "llama" else Qwen2ForCausalLM(Qwen2Config(**sizes))
    return Policy(model, tokenizer, kind)


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_a_saved_policy_is_loaded_with_the_same_weights_and_the_same_tokenizer(kind: str, tmp_path: Path) -> None:
    """For qwen2 the automatic tokenizer class alone would replace the saved rules by byte-level ones."""
    policy = made(kind)
    save_policy(policy, tmp_path / "policy")
    loaded = load_policy(str(tmp_path / "policy"))
    left, right = policy.model.state_dict(), loaded.model.state_dict()
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)
    text = "<search> Kalo Meri's mayor </search>"
    assert loaded.tokenizer.encode(text) == policy.tokenizer.encode(text)
    assert not list((tmp_path / "policy").glob("*.bin"))


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="no such directory"):
        load_policy(str(tmp_path / "nothing"))


def test_a_directory_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"has no config\.json"):
        load_policy(str(tmp_path))


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    policy = made("llama")
    save_policy(policy, tmp_path)
    torch.save(policy.model.state_dict(), tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(PolicyError, match="safetensors"):
        load_policy(str(tmp_path))


def test_an_unknown_type_of_number_is_refused() -> None:
    with pytest.raises(PolicyError, match="float32"):
        load_policy("tiny", dtype="float8")
