"""Loading policies: by directory, with their own tokenizer, and clear errors for what is none."""

import json
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.raising import raises
from tools.tiny.tokenizer import tiny_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from evoseek.models.load import Policy, load_policy, save_policy
from evoseek.models.shape import read_config
from evoseek.models.source import SHIPPED, find_policy, tiny_policy_dir

SIZES = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


def made(kind: str) -> Policy:
    tokenizer = tiny_tokenizer()
    torch.manual_seed(0)
    sizes = SIZES | {"vocab_size": len(tokenizer), "num_key_value_heads": 1}
    model = LlamaForCausalLM(LlamaConfig(**sizes)) if kind == "llama" else Qwen2ForCausalLM(Qwen2Config(**sizes))
    return Policy(model, tokenizer, kind)


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """What the libraries log, which would be shown on the terminal."""
    loggers = [logging.getLogger(name) for name in ("transformers", "huggingface_hub")]
    for logger in loggers:
        logger.addHandler(caplog.handler)
    yield caplog
    for logger in loggers:
        logger.removeHandler(caplog.handler)


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
    with raises("model.missing", match="no such directory"):
        load_policy(str(tmp_path / "nothing"))


def test_a_directory_without_a_model_is_named(tmp_path: Path) -> None:
    with raises("model.folder_without_model"):
        load_policy(str(tmp_path))


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    policy = made("llama")
    save_policy(policy, tmp_path)
    torch.save(policy.model.state_dict(), tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    with raises("model.not_loaded"):
        load_policy(str(tmp_path))


def test_an_unknown_type_of_number_is_refused() -> None:
    with raises("model.dtype", match="float32"):
        load_policy("tiny", dtype="float8")


def test_saving_again_replaces_the_whole_directory(tmp_path: Path) -> None:
    policy = made("llama")
    save_policy(policy, tmp_path / "policy")
    (tmp_path / "policy" / "stray").touch()
    with torch.no_grad():
        policy.model.lm_head.weight.fill_(2.0)
    save_policy(policy, tmp_path / "policy")
    loaded = load_policy(str(tmp_path / "policy"))
    assert torch.all(loaded.model.lm_head.weight == 2.0)
    assert not loaded.model.training
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]
    assert not (tmp_path / "policy" / "stray").exists()


def test_a_tokenizer_without_padding_pads_with_the_end(tmp_path: Path) -> None:
    policy = made("qwen2")
    policy.tokenizer.pad_token = None
    save_policy(policy, tmp_path)
    assert load_policy(str(tmp_path)).tokenizer.pad_token == policy.tokenizer.eos_token


def test_the_type_of_numbers_asked_for(tmp_path: Path) -> None:
    save_policy(made("llama"), tmp_path)
    assert load_policy(str(tmp_path), dtype="bfloat16").model.dtype == torch.bfloat16


def test_a_mistyped_directory_is_named_at_once_with_the_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub, which nobody answers for here, is asked once, and not again after a pause."""

    def pause(seconds: float) -> None:
        pytest.fail(f"waited {seconds} s")

    (tmp_path / "SmolLM2-135M").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", pause)
    assert read_config("SmolLM2-135") == {}
    with raises("model.not_loaded", match=r"no such directory here\. Did you mean SmolLM2-135M\?"):
        load_policy("SmolLM2-135")


def test_an_unknown_model_or_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with raises("model.not_loaded", match=r"no such directory here.*Check the name and the network"):
        load_policy("nobody/no-such-model")


def test_an_unknown_device(tmp_path: Path) -> None:
    save_policy(made("llama"), tmp_path)
    with raises("model.device", match=r"got the device 'nonsense', .* has cpu.*policy\.device=cpu"):
        load_policy(str(tmp_path), device="nonsense")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_no_matter_of_the_network() -> None:
    with raises("model.device", match=r"'cuda', .* has cpu\. Set policy\.device") as told:
        load_policy("tiny", device="cuda")
    assert "network" not in str(told.value)


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
@pytest.mark.parametrize("damage", ["config", "weights", "no weights", "no tokenizer"])
def test_a_damaged_directory_is_refused(kind: str, damage: str, tmp_path: Path) -> None:
    save_policy(made(kind), tmp_path)
    weights = tmp_path / "model.safetensors"
    if damage == "config":
        (tmp_path / "config.json").write_text("{")
    elif damage == "weights":
        weights.write_bytes(weights.read_bytes()[:100])
    elif damage == "no weights":
        weights.unlink()
    else:
        for path in tmp_path.glob("token*"):
            path.unlink()
    with raises("model.not_loaded"):
        load_policy(str(tmp_path))


def test_no_progress_bar_of_the_library_is_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    save_policy(made("llama"), tmp_path / "policy")
    load_policy(str(tmp_path / "policy"))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("file", "content"),
    [("tokenizer_config.json", "[]"), ("config.json", '{"hidden_size": "x"}'), ("config.json", '{"vocab_size": 8}')],
)
def test_a_directory_of_the_wrong_content_is_one_paragraph(
    file: str, content: str, tmp_path: Path, logged: pytest.LogCaptureFixture
) -> None:
    save_policy(made("llama"), tmp_path)
    path = tmp_path / file
    changes = json.loads(content)
    path.write_text(json.dumps(json.loads(path.read_text()) | changes if changes else changes))
    with raises("model.not_loaded"):
        load_policy(str(tmp_path))
    assert not logged.records


def test_a_model_that_lacks_weights_is_refused(tmp_path: Path) -> None:
    save_policy(made("llama"), tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with raises("model.not_loaded", match=r"model\.norm\.weight"):
        load_policy(str(tmp_path))


def test_a_hub_that_is_not_there_is_given_up_soon(
    monkeypatch: pytest.MonkeyPatch, logged: pytest.LogCaptureFixture
) -> None:
    """The libraries would try six times for every file, with pauses of 31 seconds in all."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    closed = "http://127.0.0.1:9/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", closed)
    begun = time.monotonic()
    with raises("model.not_loaded"):
        load_policy("nobody/no-such-model")
    assert time.monotonic() - begun < 20
    assert not logged.records


@pytest.mark.parametrize("name", SHIPPED)
def test_every_policy_that_the_package_carries_is_loaded_by_its_name(name: str) -> None:
    """Alike in all but their weights, so that one can take the place of another; one that browses has a tag more."""
    policy, tiny = load_policy(name), load_policy("tiny")
    assert find_policy(name) == str(tiny_policy_dir(name))
    assert policy.name == name
    more = {"<browse>": 339, "</browse>": 340} if name == "tiny-web" else {}
    assert policy.tokenizer.get_vocab() == tiny.tokenizer.get_vocab() | more
    left, right = policy.model.state_dict(), tiny.model.state_dict()
    shapes = {key: tuple(value.shape) for key, value in right.items()}
    if more:
        shapes |= dict.fromkeys(("model.embed_tokens.weight", "lm_head.weight"), (341, 128))
    assert {key: tuple(value.shape) for key, value in left.items()} == shapes
    assert (name == "tiny") == all(map(torch.equal, left.values(), right.values()))


def test_any_other_name_is_left_as_it_is() -> None:
    for name in ("tiny-strong", "nobody/model", "./tiny"):
        assert find_policy(name) == name


def test_of_a_run_directory_the_policy_of_the_last_checkpoint_is_loaded(tmp_path: Path) -> None:
    """By the number of its step, which may be longer than six digits."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_text("{}")  # a run's settings, which describe no model
    for name in ("lock", "inputs.json"):
        (run / name).touch()
    with raises("model.run_without_checkpoint"):
        load_policy(str(run))
    for step in ("step-000020", "step-1000000"):
        save_policy(made("llama" if step == "step-000020" else "qwen2"), run / "checkpoints" / step / "policy")
    assert find_policy(str(run)) == str(run / "checkpoints/step-1000000/policy")
    (run / "checkpoints/step-1000000-best/policy").mkdir(parents=True)  # a copy that somebody made by hand
    assert find_policy(str(run)) == str(run / "checkpoints/step-1000000/policy")
    loaded = load_policy(str(run))
    assert (loaded.name, type(loaded.model)) == (str(run), Qwen2ForCausalLM)
    assert read_config(str(run))["model_type"] == "qwen2"


def test_policies_that_threads_load_at_once_leave_the_libraries_as_they_were() -> None:
    """While it loads, transformers replaces a method of its own class, and puts back what it found."""
    usual = PreTrainedModel.tie_weights
    with ThreadPoolExecutor(4) as threads:
        loaded = list(threads.map(load_policy, ["tiny"] * 12))
    assert PreTrainedModel.tie_weights is usual
    assert len(loaded) == 12
