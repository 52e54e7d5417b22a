"""Policies whose weights are not read yet: their model is spread over several processes first, each of which then reads
its own rows. So no process holds all weights of a model at any time."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.utils.hub import cached_file, get_checkpoint_shard_files

from evoseek.models.load import generation_config, load_tokenizer, quietly
from evoseek.models.policy import Policy
from evoseek.models.source import find_policy, is_adapter, is_gguf
from evoseek.storage.files import expanded

_WHOLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_FLOATS = ("F32", "F16", "BF16")


def load_deferred(name_or_dir: str) -> Policy | None:
    """A policy in float32 and evaluation mode whose parameters are on the device `meta`, and which names the files that
    hold them; everything else is as `load_policy` gives it.

    None for what has to be read whole, or cannot be read, which `load_policy` then reports: an adapter, a GGUF file,
    and files whose tensors are not those of the model by name and shape.
    """
    source = find_policy(name_or_dir)
    path = expanded(source)
    if is_gguf(source) or is_adapter(path):
        return None
    source = str(path.absolute()) if path.exists() else source
    try:
        with quietly():
            files = _weight_files(source)
            if not files:
                return None
            model = _empty_model(source)
            if not _holds(files, model):
                return None
            model.generation_config = generation_config(source, model)
    except (OSError, ValueError, SafetensorError):
        return None
    return Policy(model.eval(), load_tokenizer(name_or_dir), name_or_dir, deferred_weights=files)


def _weight_files(source: str) -> tuple[Path, ...]:
    """The safetensors files that transformers would read, in its order of preference; none if there are none."""
    if whole := _file(source, _WHOLE):
        return (Path(whole),)
    index = _file(source, _INDEX)
    files = get_checkpoint_shard_files(source, index)[0] if index else None
    return tuple(map(Path, files or ()))


def _file(source: str, name: str) -> str | None:
    try:
        return cached_file(source, name)
    except OSError:
        return None


def _empty_model(source: str) -> PreTrainedModel:
    config = AutoConfig.from_pretrained(source, trust_remote_code=False)
    if getattr(config, "quantization_config", None) is not None:
        raise ValueError("its weights are quantized")
    with _without_weights():
        return AutoModelForCausalLM.from_config(
            config, dtype=torch.float32, attn_implementation="sdpa", trust_remote_code=False
        )


@contextmanager
def _without_weights() -> Generator[None]:
    """Put the parameters of modules made in the block on the device `meta`. Buffers are computed, since no file holds
    some of them (frequencies of rotary embeddings)."""

    def emptied(module: nn.Module, name: str, parameter: nn.Parameter | None) -> nn.Parameter | None:
        if parameter is None or parameter.is_meta:
            return None  # leaves a tied parameter the one that it is
        return nn.Parameter(parameter.to("meta"), requires_grad=parameter.requires_grad)

    # what the hook returns is registered in place of the parameter, which its declared type does not say
    handle = register_module_parameter_registration_hook(emptied)  # pyright: ignore[reportArgumentType]
    try:
        yield
    finally:
        handle.remove()


def _holds(files: Sequence[Path], model: PreTrainedModel) -> bool:
    """Whether the files hold every parameter and every saved buffer once, tied ones under one of their names."""
    found = _tensors(files)
    names: dict[int, list[str]] = {}
    state: Mapping[str, torch.Tensor] = model.state_dict(keep_vars=True)
    for name, tensor in state.items():
        names.setdefault(id(tensor), []).append(name)
    held = [[name for name in tied if name in found] for tied in names.values()]
    return all(len(own) == 1 and found[own[0]] == list(state[own[0]].shape) for own in held)


def _tensors(files: Sequence[Path]) -> dict[str, list[int]]:
    """The shapes of all tensors of floats, by name."""
    with ExitStack() as opened:
        found: dict[str, list[int]] = {}
        for path in files:
            file: Any = opened.enter_context(safe_open(path, framework="pt"))
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118, it is no mapping
            found |= {name: part.get_shape() for name, part in slices.items() if part.get_dtype() in _FLOATS}
        return found
