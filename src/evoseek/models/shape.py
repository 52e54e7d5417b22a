"""A model's sizes, from its config.json (or a GGUF file's header) alone: the weights are not read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from huggingface_hub import (
    get_hf_file_metadata,
    hf_hub_download,
    hf_hub_url,
    scan_cache_dir,
    try_to_load_from_cache,
)
from huggingface_hub.errors import CacheNotFound, HfHubHTTPError

from evoseek.errors import PolicyError
from evoseek.models.converted import gguf_config, place_of
from evoseek.models.source import find_policy, is_adapter, is_gguf
from evoseek.storage.files import expanded

_BASE = "base_model_name_or_path"
_LAYERS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "decoder_layers")
_SIZES = (*_LAYERS, "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size")
_MOST_LAYERS = 10_000
_TEMPLATE = "chat_template"
_GGUF_HEADER = 64 << 20  # bytes in which a GGUF file names its chat template
_GGUF_BYTES = 0.7  # rough size of a parameter in a GGUF file: most have four or five bits


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a decoder. For each token, `kv_numbers` are kept (keys and values of all layers), and `activations` are
    saved for the backward pass, in all `layers`. An adapter over every linear layer of the body has `adapted`
    parameters for each rank."""

    parameters: int
    kv_numbers: int
    longest: int | None
    activations: int = 0
    vocabulary: int = 0
    layers: int = 1
    adapted: int = 0


def read_config(name_or_dir: str) -> Mapping[str, object]:
    """Read the config.json of a policy (for an adapter, its base's; for a GGUF file, an equivalent); empty if there is
    none.

    Errors in such a policy are reported when it is loaded.
    """
    source = find_policy(name_or_dir)
    if is_gguf(source):
        return gguf_config(source)
    directory = expanded(source)
    adapter = _read(directory / "adapter_config.json")
    if not (directory / "config.json").is_file() and isinstance(base := adapter.get(_BASE), str):
        return {} if is_adapter(expanded(find_policy(base))) else read_config(base)
    if directory.is_dir():
        return _read(directory / "config.json")
    try:
        check_hub(name_or_dir)
        return _read(Path(hf_hub_download(name_or_dir, "config.json")))
    except Exception:  # for the connection (their kinds are not documented), or for a name unknown to the hub
        return {}


def local_config(name_or_dir: str) -> Mapping[str, object]:
    """Read the config of a model on this machine; empty for any other model: the hub is not queried."""
    return read_config(name_or_dir) if is_here(name_or_dir) else {}


def is_here(model: str) -> bool:
    """Return whether a model is a file or a folder, or in the cache of the Hugging Face hub."""
    try:
        source = find_policy(model)
        if is_gguf(source) or expanded(source).exists():
            return expanded(source).exists()
        return isinstance(try_to_load_from_cache(source, "config.json"), str)
    except (PolicyError, ValueError):  # its package is not installed; or it is a path, not a name on the hub
        return False


def instruct_models(folders: Iterable[Path]) -> list[str]:
    """Return the models with a chat template in these folders or in the cache of the Hugging Face hub, largest first.
    They are complete, and quantised only in GGUF files, whose size is estimated from their bytes."""
    names = [str(path) for folder in folders for path in sorted(folder.glob("*"))]
    with suppress(CacheNotFound, OSError, ValueError):
        names += sorted(repo.repo_id for repo in scan_cache_dir().repos if repo.repo_type == "model")
    sizes = {name: instruct_size(name) for name in dict.fromkeys(names)}
    return sorted((name for name, size in sizes.items() if size), key=lambda name: -sizes[name])


def instruct_size(name: str) -> float:
    """Estimate the parameters of an instruct model on this machine; 0 for anything else."""
    place = place_of(name)
    if place is None:
        return 0
    if is_gguf(name) and place.is_file():
        with place.open("rb") as file:
            has_template = b"tokenizer.chat_template" in file.read(_GGUF_HEADER)
        return place.stat().st_size / _GGUF_BYTES if has_template else 0
    config, index = _read(place / "config.json"), _read(place / "model.safetensors.index.json")
    weights = index.get("weight_map", {"": "model.safetensors"})
    files = set(cast("Mapping[str, str]", weights).values()) if isinstance(weights, Mapping) else {""}
    is_whole = all((place / file).is_file() for file in files)
    has_template = _TEMPLATE in _read(place / "tokenizer_config.json") or (place / f"{_TEMPLATE}.jinja").is_file()
    shape = shape_of(config) if is_whole and has_template and "quantization_config" not in config else None
    return shape.parameters if shape else 0


def check_sizes(name_or_dir: str) -> None:
    """Raise PolicyError for a config with impossible sizes: building such a model would never end, or crash."""
    config = read_config(name_or_dir)
    nested = config.get("text_config")
    for sizes in (config, cast("Mapping[str, object]", nested) if isinstance(nested, Mapping) else {}):
        for name in (*_SIZES, "vocab_size"):
            most = _MOST_LAYERS if name in _LAYERS else None
            value = sizes.get(name)
            if type(value) is int and (value < 1 or (most and value > most)):
                valid = f"a number from 1 to {most:,}" if most else "a number above 0"
                raise PolicyError(
                    f"the policy '{name_or_dir}' has {name} {value} in its config. Expected {valid}. Correct the file, "
                    "or get the model again."
                )


def check_hub(source: str) -> None:
    """Contact the hub once if nothing of a model is on this machine: the libraries would try for over a minute before
    giving up. Any answer of the hub is fine, since loading explains it. Raises the connection's errors."""
    if expanded(source).exists() or isinstance(try_to_load_from_cache(source, "config.json"), str):
        return
    try:
        get_hf_file_metadata(hf_hub_url(source, "config.json"))
    except HfHubHTTPError:
        return


def prompts_for(name_or_dir: str, setting: str) -> str:
    """Return the prompt set that a policy would have: the setting, or for "auto" the one in its config (`default` if
    it has none)."""
    return str(read_config(name_or_dir).get("evoseek_prompts", "default")) if setting == "auto" else setting


def shape_of(config: Mapping[str, object]) -> ModelShape | None:
    """Return the sizes in a config of the Llama kind (Qwen, Mistral, Gemma, ...); None if it names its sizes
    differently, or if one is not above 0.

    Parameters are counted without biases; all experts are counted.
    """
    if isinstance(config.get("text_config"), Mapping):
        config = cast("Mapping[str, object]", config["text_config"])
    sizes = {name: value for name, value in config.items() if type(value) is int and value > 0}
    try:
        hidden, layers, heads = sizes["hidden_size"], sizes["num_hidden_layers"], sizes["num_attention_heads"]
        inner, vocabulary = sizes["intermediate_size"], sizes["vocab_size"]
    except KeyError:
        return None
    kv_heads, head = sizes.get("num_key_value_heads", heads), sizes.get("head_dim", hidden // heads)
    experts = sizes.get("num_local_experts", sizes.get("num_experts", 1))
    inner = sizes.get("moe_intermediate_size", inner) if experts > 1 else inner
    attention = 2 * hidden * head * (heads + kv_heads)
    used = inner * sizes.get("num_experts_per_tok", 1)
    layer = attention + 3 * hidden * inner * experts + 2 * hidden
    widths = 2 * hidden + 2 * head * (heads + kv_heads) + 2 * hidden + 3 * (hidden + inner) * experts
    embeddings = vocabulary * hidden * (1 if config.get("tie_word_embeddings") else 2)
    return ModelShape(
        parameters=embeddings + layers * layer + hidden,
        kv_numbers=2 * layers * kv_heads * head,
        longest=sizes.get("max_position_embeddings"),
        activations=layers * (14 * hidden + 4 * used),  # measured: 13.1 and 14.5 times the hidden size
        vocabulary=vocabulary,
        layers=layers,
        adapted=layers * widths,
    )


def _read(path: Path) -> Mapping[str, object]:
    try:
        found: object = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return cast("Mapping[str, object]", found) if isinstance(found, dict) else {}
