"""Sizes from a config.json, compared with the published numbers of parameters."""

import json
import shutil
from functools import partial
from pathlib import Path

import pytest
from huggingface_hub import scan_cache_dir

from evoseek.errors import PolicyError
from evoseek.models.load import load_critic, load_policy
from evoseek.models.shape import ModelShape, instruct_models, read_config, shape_of
from evoseek.models.source import find_policy

SMOLLM2_135M = {
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}
QWEN25_3B = {
    "hidden_size": 2048,
    "intermediate_size": 11008,
    "num_hidden_layers": 36,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": True,
}


def test_sizes_by_hand():
    activations = 30 * (14 * 576 + 4 * 1536)
    adapted = 30 * (2 * (576 + 576) + 2 * (576 + 192) + 3 * (576 + 1536))  # q and o, k and v, the three of the MLP
    expected = ModelShape(134_515_008, 2 * 30 * 3 * 64, 8192, activations, 49152, 30, adapted)
    assert shape_of(SMOLLM2_135M) == expected
    qwen = shape_of(QWEN25_3B)
    assert (qwen.kv_numbers, round(qwen.parameters / 1e9, 2)) == (2 * 36 * 2 * 128, 3.09)
    assert shape_of({"text_config": QWEN25_3B}) == qwen
    untied = shape_of(QWEN25_3B | {"tie_word_embeddings": False, "head_dim": 64})
    assert untied.parameters == qwen.parameters + 151936 * 2048 - 36 * 2 * 2048 * 64 * 18
    assert untied.kv_numbers == 2 * 36 * 2 * 64


def test_all_experts_are_counted():
    moe = shape_of(SMOLLM2_135M | {"num_experts": 4, "moe_intermediate_size": 512})
    assert moe.parameters - 134_515_008 == 30 * 3 * 576 * (4 * 512 - 1536)


def test_the_tiny_policys_count_is_its_models_but_for_biases():
    model = load_policy("tiny").model
    biases = sum(p.numel() for name, p in model.named_parameters() if name.endswith("bias"))
    assert shape_of(read_config("tiny")).parameters == model.num_parameters() - biases


def test_instruct_models_are_found_in_folders_and_in_the_cache_of_the_hub(tmp_path, monkeypatch):
    """The largest first; without those that have no chat template, lack weights, or are quantised, and what is no
    model."""
    hub, folder = tmp_path / "hub", tmp_path / "models"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(hub))
    monkeypatch.setattr("evoseek.models.shape.scan_cache_dir", partial(scan_cache_dir, hub))
    assert instruct_models([folder]) == []

    def make(place, config=SMOLLM2_135M, *, template="chat_template.jinja", weights="model.safetensors"):
        place.mkdir(parents=True)
        for name, content in (("config.json", config), (template, {}), (weights, {})):
            (place / name).write_text(json.dumps(content))

    for name, revision in (("large", "one"), ("no-weights", "two")):
        own = hub / f"models--acme--{name}"
        make(own / "snapshots" / revision, QWEN25_3B, weights="model.safetensors" if name == "large" else "notes")
        (own / "refs").mkdir()
        (own / "refs" / "main").write_text(revision)
    make(folder / "small")
    make(folder / "base", template="notes")
    make(folder / "eighth", SMOLLM2_135M | {"quantization_config": {"bits": 8}})
    make(folder / "shards", weights="model.safetensors.index.json")
    shards = {"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}
    (folder / "shards" / "model.safetensors.index.json").write_text(json.dumps(shards))
    (folder / "shards" / "1.safetensors").touch()
    for name, key in (("instruct", b"tokenizer.chat_template"), ("base", b"tokenizer.ggml.tokens")):
        (folder / f"{name}.gguf").write_bytes(b"GGUF" + key + bytes(1000))
    assert instruct_models([folder, folder]) == ["acme/large", f"{folder}/small", f"{folder}/instruct.gguf"]
    (folder / "shards" / "2.safetensors").touch()
    assert f"{folder}/shards" in instruct_models([folder])


def test_a_config_is_found_in_a_directory_below_an_adapter_or_nowhere(tmp_path):
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    for folder in (base, adapter):
        folder.mkdir()
    (base / "config.json").write_text(json.dumps(SMOLLM2_135M))
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(base)}))
    assert read_config(str(adapter)) == read_config(str(base)) == SMOLLM2_135M
    (base / "config.json").write_text("{")
    assert read_config(str(base)) == {}
    assert shape_of({"n_embd": 768}) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in ("num_hidden_layers", "num_attention_heads", "vocab_size") for value in (0, -1)),
        *(("num_key_value_heads", 0), ("head_dim", 0), ("hidden_size", -64), ("intermediate_size", 0)),
        ("num_hidden_layers", 10**6),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_sizes_that_no_model_has_are_refused_before_anything_is_made(tmp_path, name, value, nested):
    tiny = Path(find_policy("tiny"))
    config = json.loads((tiny / "config.json").read_text())
    shutil.copytree(tiny, tmp_path / "model")
    changed = {**config, "text_config": {**config, name: value}} if nested else {**config, name: value}
    (tmp_path / "model" / "config.json").write_text(json.dumps(changed))
    for load in (load_policy, load_critic):
        with pytest.raises(PolicyError, match=rf"has {name} {value} in its config\. Expected a number"):
            load(str(tmp_path / "model"))
    assert value > 0 or shape_of(changed) is None or name in ("num_key_value_heads", "head_dim")
