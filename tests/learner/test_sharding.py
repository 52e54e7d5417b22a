"""Two and three ranks against one. Each case forks processes that have everything imported: see ranks_child.py."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import CohereForCausalLM, Qwen2Config, Qwen2ForCausalLM

from evoseek.learner.sharding import load_deferred
from evoseek.models.load import load_policy, save_policy
from evoseek.models.lora import add_adapter
from evoseek.models.policy import Policy

RunRanks = Callable[..., dict]


def largest_difference(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    return max(float((tensor - other[name]).abs().max()) for name, tensor in one.items())


@pytest.mark.parametrize(
    ("model", "size", "count"),
    [
        *((model, 2, 7) for model in ("plain", "tied", "frozen", "recomputed")),
        *((model, 3, 1) for model in ("plain", "frozen")),  # two of three ranks have no sample
    ],
)
def test_the_gradient_is_that_of_one_process(
    run_ranks: RunRanks, tmp_path: Path, model: str, size: int, count: int
) -> None:
    alone = run_ranks(1, "gradient", model=model, count=count, output=str(tmp_path / "alone"))["results"][0]
    results = run_ranks(size, "gradient", model=model, count=count, output=str(tmp_path / "spread"))["results"]
    expected, got = (load_file(tmp_path / name) for name in ("alone", "spread"))
    assert max(float(tensor.abs().max()) for tensor in expected.values()) > 0.01
    assert largest_difference(expected, got) < 1e-6
    for metrics in results:  # every rank reports the whole batch
        assert metrics == pytest.approx(alone, abs=1e-6)


def test_a_step_on_two_terms_is_that_of_one_process(run_ranks: RunRanks, tmp_path: Path) -> None:
    results = [run_ranks(size, "together", output=str(tmp_path / str(size)))["results"] for size in (1, 2)]
    one, two = load_file(tmp_path / "1"), load_file(tmp_path / "2")
    assert largest_difference(one, two) < 1e-5
    (step, terms), spread = results[0][0], results[1]
    for found, own in spread:
        assert found == pytest.approx(step, abs=1e-5)
        assert all(metrics == pytest.approx(alone, abs=1e-5) for metrics, alone in zip(own, terms, strict=True))


def test_four_adamw_steps_of_the_tiny_policy_on_two_ranks_and_on_one(run_ranks: RunRanks, tmp_path: Path) -> None:
    """At ten times the rate the key biases part by 3e-5: attention does not depend on them, so that their gradient is
    rounding noise, which AdamW scales up to its step."""
    metrics = [run_ranks(size, "train", output=str(tmp_path / str(size)))["results"][0] for size in (1, 2)]
    one, two = load_file(tmp_path / "1"), load_file(tmp_path / "2")
    before = load_policy("tiny").model.state_dict()
    assert largest_difference(dict(before), one) > 3e-4
    assert largest_difference(one, two) < 1e-5
    for alone, spread in zip(*metrics, strict=True):
        assert spread == pytest.approx(alone, rel=1e-4)


def test_publishing_copies_what_is_trained_and_a_pass_without_gradient_leaves_parameters_spread(
    run_ranks: RunRanks,
) -> None:
    for result in run_ranks(2, "publish")["results"]:
        assert len(result["trained"]) == 4
        assert result["spread"]
        assert result["names"] == result["trained"] == result["moved"]
        assert result["equal"]


def save_model(directory, *, kind=Qwen2ForCausalLM, tied=True, dtype=torch.float32, shard="5GB"):
    """A model of unequal rows, whose rotary embeddings are of its own base, with the tiny policies' tokenizer."""
    torch.manual_seed(0)
    config = kind.config_class(
        vocab_size=71,
        hidden_size=18,
        head_dim=8,
        intermediate_size=33,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        initializer_range=0.3,
        tie_word_embeddings=tied,
    )
    kind(config).to(dtype).save_pretrained(directory, max_shard_size=shard)
    load_policy("tiny").tokenizer.save_pretrained(directory)
    return str(directory)


@pytest.mark.parametrize(
    ("options", "size", "layout"),
    [
        pytest.param(None, 2, [True, sys.maxsize], id="tiny"),
        pytest.param({}, 3, [True, sys.maxsize], id="tied"),
        pytest.param({"tied": False, "shard": "6KB"}, 2, [True, sys.maxsize], id="untied, in several files"),
        pytest.param({"dtype": torch.bfloat16}, 2, [True, sys.maxsize], id="saved in bfloat16"),
        pytest.param({"kind": CohereForCausalLM}, 2, [False, sys.maxsize], id="with scaled logits"),
    ],
)
def test_ranks_that_read_their_rows_alone_hold_the_same_bits(run_ranks: RunRanks, tmp_path, options, size, layout):
    """Parameters, buffers, which no file holds, gradients, and how the model is found to compute."""
    model = "tiny" if options is None else save_model(tmp_path / "model", **options)
    for result in run_ranks(size, "read", model=model)["results"]:
        assert result["before"]
        assert result["spread"]
        assert min(result["numbers"].values()) > 0
        assert all(result["equal"].values()), result["equal"]
        assert result["kept"]
        assert result["layout"] == layout


def test_ranks_do_not_wait_for_one_that_cannot_read_its_rows(run_ranks: RunRanks) -> None:
    answer = run_ranks(2, "read_fails", fails=True)
    assert answer["statuses"] == [2, 1]
    assert answer["results"][0].startswith("EndedElsewhereError")
    assert "nowhere" in answer["output"]


def test_a_spread_model_is_saved_whole_by_the_first_rank_alone(run_ranks: RunRanks, tmp_path: Path) -> None:
    first, second = run_ranks(2, "export", directory=str(tmp_path / "policy"))["results"]
    assert first["same"]
    assert first["missing"] == ["lm_head.weight"]  # tied to the embeddings, which are there
    assert second["names"] == []


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
