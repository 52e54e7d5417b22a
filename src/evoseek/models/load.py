"""Loading and saving policies: Hugging Face causal language models with their tokenizers, or adapters over them; and
critics, the body of a policy with a head that predicts one number per token."""

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import Any, cast

import torch
from huggingface_hub.utils import logging as hub_logging
from transformers import (
    AutoModelForCausalLM,
    AutoModelForTokenClassification,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.models.auto.tokenization_auto import get_tokenizer_config
from transformers.utils import logging

from evoseek.errors import PolicyError
from evoseek.models.converted import BOUNDARY, entry_of, find_entry, load_gguf, load_gguf_tokenizer, write_entry
from evoseek.models.cpu_matmul import is_small, quicken_products
from evoseek.models.lora import adapter_name, load_adapter, plain_model, save_adapter
from evoseek.models.machine import devices, keep_freed_memory, release_freed_memory
from evoseek.models.policy import Policy, eos_ids, has_adapters
from evoseek.models.shape import check_hub, check_sizes
from evoseek.models.source import ADAPTER, REMOTE, SMOLLM2, base_name, check_policy, find_policy, is_adapter, is_gguf
from evoseek.storage.files import expanded, nearest, replace_directory
from evoseek.types import StopConditions

_HEADS = ("score.", "classifier.")  # the name of a token classifier's head in transformers
_PLAIN_TOKENIZERS = ("PreTrainedTokenizerFast", "TokenizersBackend")
_LOADING = RLock()
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load_policy(name_or_dir: str, *, device: str = "cpu", dtype: str = "float32", adapter: str | None = None) -> Policy:
    """Load a policy by directory, GGUF file, Hugging Face name, or a name such as `tiny` (see models.source).

    A run's directory gives the policy of its last checkpoint; an adapter's directory (models.lora) also loads its base,
    and `adapter` renames it. Only safetensors are read (nothing is unpickled, no code of the model runs), or a GGUF
    file, which is unpacked. The model is in evaluation mode. Raises PolicyError.
    """
    if dtype not in _DTYPES:
        raise PolicyError(
            f"got dtype '{dtype}' for policy '{name_or_dir}', expected one of {', '.join(_DTYPES)}.", code="model.dtype"
        )
    source = find_policy(name_or_dir)
    try:
        return _load_found(name_or_dir, source, device, dtype, adapter)
    except PolicyError:
        if expanded(source).exists() or find_policy(name_or_dir) == source:
            raise
        return load_policy(name_or_dir, device=device, dtype=dtype, adapter=adapter)  # the run has saved a newer one


def _load_found(name_or_dir: str, source: str, device: str, dtype: str, adapter: str | None) -> Policy:
    check_device(device)
    path = expanded(source)
    if path.exists():
        source = str(path.absolute())  # an adapter records it, and may be loaded from elsewhere
    if (path / REMOTE).is_file():
        raise PolicyError(
            f"got '{source}' as the policy, but its weights are at a service; {path / REMOTE} says where. Use the "
            "run's directory (--run-dir), which samples at the service, or download them from there and give what "
            "you downloaded."
        )
    check_policy(name_or_dir, setting="the policy")
    check_sizes(name_or_dir)
    if is_adapter(path):
        return _load_adapted(name_or_dir, path, device, dtype, adapter or adapter_name(path))
    try:
        with quietly():
            check_hub(source)
            model, tokenizer, is_mapped = _load_parts(source, dtype)
        if is_gguf(source) or is_mapped:
            model.name_or_path = SMOLLM2 if name_or_dir == SMOLLM2 else source  # what an adapter records as its base
        place(model, device, is_mapped=is_mapped)
    except PolicyError:
        raise
    except Exception as error:  # errors for a damaged directory or a full device are not documented
        absent = "" if path.exists() else f"There is no such directory here.{nearest(path)} The hub was tried, too. "
        raise PolicyError(
            f"the policy '{name_or_dir}' could not be loaded on '{device}': {first_line(error)} {absent}Expected a "
            "directory written by save_pretrained, with safetensors weights and a tokenizer, a GGUF file, or the name "
            "of a causal language model on the Hugging Face hub. Check the name and the network, or download the model "
            "and give its directory.",
            code="model.not_loaded",
        ) from error
    return Policy(model, tokenizer, name_or_dir)


def check_device(name: str) -> torch.device:
    """Return the device of that name. If this machine lacks it, raise PolicyError, which names the existing ones."""
    if name not in (found := devices()):
        raise PolicyError(
            f"got the device '{name}', but this machine, with this installation of torch, has {', '.join(found)}. Set "
            "policy.device to one of these (policy.device=cpu works everywhere), or install a torch that was built "
            "for the device, and its driver.",
            code="model.device",
        )
    return torch.device(name)


def place(model: PreTrainedModel, device: str, *, is_mapped: bool = False) -> None:
    """Put a model that was read from files on a device, in evaluation mode, with each weight in its own memory.

    Weights are read into a mapped file, at addresses that depend on the length of its header. On a CPU, the last bits
    of a matrix product depend on the addresses of its operands. A model that `is_mapped` from the cache stays there,
    with weights aligned as in allocated memory; writes to them are private to this process.
    """
    model.to(device)  # pyright: ignore[reportArgumentType]
    for parameter in model.parameters():
        if not is_mapped or parameter.data_ptr() % BOUNDARY:
            parameter.data = parameter.data.clone()
    if model.dtype == torch.bfloat16 or not is_small(model):
        quicken_products(model)
    model.eval()


def prepare_process(policy: Policy) -> None:
    """Prepare this whole process for a model on a CPU; for one elsewhere do nothing.

    Freed memory is kept for the next pass. A small model computes with one thread: its operations are too small for a
    second one to help, and the bits are then the same on machines with any number of cores.
    """
    if policy.model.device.type != "cpu":
        return
    keep_freed_memory()
    if is_small(policy.model):
        torch.set_num_threads(1)


def save_policy(policy: Policy, directory: Path, state_dict: dict[str, torch.Tensor] | None = None) -> None:
    """Write the policy and its tokenizer so that `from_pretrained(directory)` loads them; whole or not at all.

    A policy with an adapter is saved as that adapter, which refers to its base. `state_dict` is the model's whole state
    if this process holds only a part of it. Raises PolicyError if the base cannot be loaded from anywhere.
    """
    with replace_directory(directory) as partial, quietly():
        if policy.adapter is not None:
            save_adapter(policy, partial, state_dict)
        else:
            plain_model(policy).save_pretrained(partial, state_dict=state_dict)
        policy.tokenizer.save_pretrained(partial)


def merged(policy: Policy) -> Policy:
    """Return the policy as a plain model, its adapter merged into a copy of the weights; without adapters, itself."""
    return replace(policy, model=plain_model(policy), adapter=None)


def export_policy(policy: Policy, directory: Path, stop: StopConditions | None = None) -> None:
    """Write the policy as a plain full model, its adapter merged, whose generation settings end a turn at `stop`."""
    save_policy(merged(policy), directory)
    if stop is not None:
        settings = deepcopy(policy.model.generation_config) or GenerationConfig()
        settings.stop_strings = list(stop.strings) or None
        settings.eos_token_id = list(dict.fromkeys([*eos_ids(policy), *stop.token_ids])) or None
        settings.save_pretrained(directory)


def load_critic(name_or_dir: str, *, device: str = "cpu") -> PreTrainedModel:
    """Load the critic saved in a directory, or make a new one: the body of a policy (or of an adapter's base) with a
    head that predicts 0 everywhere. In float32 and in evaluation mode. Raises PolicyError."""
    source = find_policy(name_or_dir)
    if is_adapter(expanded(source)):
        source = find_policy(base_name(expanded(source)))
    check_sizes(source)
    try:
        with quietly():
            model, missing = _read_model(source, torch.float32, AutoModelForTokenClassification, num_labels=1)
        if foreign := [name for name in missing if not name.startswith(_HEADS)]:
            raise ValueError(f"{len(foreign)} of the body's weights are not in the files, {foreign[0]} for one")
        place(model, device)
    except Exception as error:  # errors for a damaged directory or an unsupported model are not documented
        raise PolicyError(
            f"a critic could not be made of '{name_or_dir}': {first_line(error)} Expected a model that "
            "transformers can load for token classification, such as Llama, Qwen2 or Qwen3. Choose another model, or "
            "an algorithm without a critic (credit.name other than gae).",
            code="model.no_critic",
        ) from error
    with torch.no_grad():
        for name in missing:
            model.get_parameter(name).zero_()
    return model


def save_critic(model: PreTrainedModel, directory: Path, state_dict: dict[str, torch.Tensor] | None = None) -> None:
    """Write the critic, or these weights of it, so that `load_critic(directory)` loads it; whole or not at all."""
    with replace_directory(directory) as partial, quietly():
        model.save_pretrained(partial, state_dict=state_dict)


def load_tokenizer(name_or_dir: str) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a policy, named as in `load_policy`, without its weights. Raises PolicyError."""
    source = find_policy(name_or_dir)
    path = expanded(source)
    check_policy(name_or_dir, setting="the policy")
    if is_adapter(path) and not (path / "tokenizer_config.json").is_file():
        return load_tokenizer(base_name(path))
    try:
        with quietly():
            check_hub(source)
            return _load_tokenizer(str(path) if path.is_dir() else source)
    except PolicyError:
        raise
    except Exception as error:  # as in load_policy
        raise PolicyError(
            f"the tokenizer of '{name_or_dir}' could not be loaded: {first_line(error)} Expected a directory written "
            "by save_pretrained, a GGUF file, or the name of a model on the Hugging Face hub. Check the name and the "
            "network."
        ) from error


def generation_config(source: str, model: PreTrainedModel) -> GenerationConfig:
    """Return a model's generation settings: as saved beside its config, or else derived from the config."""
    try:
        return GenerationConfig.from_pretrained(source)
    except OSError:
        return GenerationConfig.from_model_config(model.config)


def _load_adapted(name: str, directory: Path, device: str, dtype: str, adapter: str) -> Policy:
    """Load the adapter of a directory over its base, under this name."""
    base = base_name(directory)
    try:
        policy = load_policy(base, device=device, dtype=dtype)
    except PolicyError as error:
        raise PolicyError(
            f"the adapter in '{directory}' needs its base '{base}', which could not be loaded. If it was moved, write "
            f"its new place into base_model_name_or_path of {directory / ADAPTER}. The error was: {error}"
        ) from error
    if (directory / "tokenizer_config.json").is_file():
        with quietly():
            policy.tokenizer = _load_tokenizer(str(directory))
    return replace(load_adapter(policy, adapter, directory), name=name)


def _load_parts(source: str, dtype: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, bool]:
    """Load the model and its tokenizer; return also whether the model is mapped from the cache. Converted models are,
    and are written there if needed. If the cache cannot be read and written, the model is not mapped; this warns."""
    entry = entry_of(source, dtype)
    if entry is None:
        return _load_model(source, dtype), _load_tokenizer(source), False
    if entry.exists():
        try:
            return _load_model(str(entry), dtype), _load_tokenizer(source), True
        except Exception as error:  # the errors for damaged files are not documented
            warnings.warn(f"{entry} is damaged, so {source} is converted again. {first_line(error)}", stacklevel=2)
    tokenizer, model = _load_tokenizer(source), _load_model(source, dtype)
    try:
        write_entry(entry, source, model, tokenizer)
        model = _load_model(str(entry), dtype)
        release_freed_memory()
        return model, tokenizer, True
    except Exception as error:  # nor are those for a full disk
        warnings.warn(
            f"{source} is converted at each start, since the result could not be stored: {first_line(error)} Set "
            f"EVOSEEK_CACHE to a folder that can be written, with {model.get_memory_footprint() / 1e9:.1f} GB free.",
            stacklevel=2,
        )
        return model, tokenizer, False


def _load_model(source: str, dtype: str) -> PreTrainedModel:
    """Load the model. ValueError if the files lack some of its weights, or for an adapter."""
    model, missing = _read_model(source, _DTYPES[dtype], AutoModelForCausalLM)
    if missing:
        raise ValueError(f"{len(missing)} of the model's weights are not in the files, {missing[0]} for one")
    if has_adapters(model):  # of a repository on the hub, which might be pickled
        raise ValueError(
            "it is an adapter; download it (hf download NAME --local-dir DIRECTORY) and give the directory"
        )
    return model


def _read_model(source: str, dtype: torch.dtype, kind: Any, **changes: object) -> tuple[PreTrainedModel, list[str]]:
    """Load a model, with changes to its configuration; return it and the names of missing (random) weights."""
    if is_gguf(source):
        loaded = load_gguf(source, dtype, kind, **changes)
    else:
        loaded = kind.from_pretrained(
            source,
            dtype=dtype,
            attn_implementation="sdpa",
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            **changes,
        )
    model, report = cast("tuple[PreTrainedModel, dict[str, set[str]]]", loaded)
    return model, sorted(report["missing_keys"])


def _load_tokenizer(source: str) -> PreTrainedTokenizerBase:
    """Load the tokenizer; if it has no padding token, it pads with the end of the text."""
    if (entry := find_entry(source)) is not None:
        with suppress(Exception):  # for damaged files; then the source is read
            return _load_tokenizer(str(entry))
    tokenizer = load_gguf_tokenizer(source) if is_gguf(source) else _load_saved_tokenizer(source)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def _load_saved_tokenizer(source: str) -> PreTrainedTokenizerBase:
    """Load the tokenizer as it was saved.

    A tokenizer.json that declares no class is used unchanged: for some model types (qwen2) the automatic class would
    silently replace the saved rules by the rules of that type's usual tokenizer. Without tokenizer files some classes
    make an empty tokenizer, which is an error here.
    """
    declared = get_tokenizer_config(source).get("tokenizer_class")
    kind = PreTrainedTokenizerFast if declared in _PLAIN_TOKENIZERS else AutoTokenizer
    tokenizer: PreTrainedTokenizerBase = kind.from_pretrained(source, trust_remote_code=False)
    names = sorted(tokenizer.vocab_files_names.values())
    path = expanded(source)
    if path.is_dir() and not any((path / name).is_file() for name in names):
        raise OSError(f"the directory has no tokenizer ({' or '.join(names)})")
    return tokenizer


@contextmanager
def quietly() -> Generator[None]:
    """Keep the libraries' bars and reports off the terminal, which shows a run's own progress. One thread at a time:
    transformers replaces methods of its classes while it loads a model, and two concurrent loads would leave them
    replaced."""
    with _LOADING:
        bars, level, hub_level = logging.is_progress_bar_enabled(), logging.get_verbosity(), hub_logging.get_verbosity()
        logging.disable_progress_bar()
        logging.set_verbosity_error()
        hub_logging.set_verbosity_error()
        try:
            yield
        finally:
            if bars:
                logging.enable_progress_bar()
            logging.set_verbosity(level)
            hub_logging.set_verbosity(hub_level)


def first_line(error: Exception) -> str:
    """Return the kind of an error and the first line of its text, as a sentence."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.') if lines else 'no message'}."
