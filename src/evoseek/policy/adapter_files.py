"""Adapters on disk, in peft's own layout, so that transformers and peft load them too.

adapter_config.json          rank, alpha, targets, and the name or place of the base
adapter_model.safetensors    A and B of every layer
evoseek.json                 the adapter's name, and the base's fingerprint, which detects another base, with the
                             type of number that it was taken of
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from evoseek.errors import PolicyError
from evoseek.files import expanded
from evoseek.policy.lora import adapter_parameters, check_free, check_peft, inject_adapter, remove_adapter
from evoseek.policy.policy import Policy
from evoseek.policy.source import ADAPTER

if TYPE_CHECKING:
    from peft import LoraConfig

CONFIG, WEIGHTS, NOTES = ADAPTER, "adapter_model.safetensors", "evoseek.json"

_PREFIX = "base_model.model."  # peft's, in files
_PLAIN = re.compile(rf"{re.escape(_PREFIX)}.+\.lora_[AB]\.weight")
_PROBED = 64  # number of values of each of the base's tensors that enter its fingerprint


def load_adapter(policy: Policy, name: str, directory: Path) -> Policy:
    """A policy that is `policy`'s model with the adapter of a directory over it; see `add_adapter`.

    Raises PolicyError also if the directory cannot be read, holds more than plain LoRA, or was made for another base.
    """
    check_free(policy.model, name)
    config, tensors = _read(directory)
    notes = _read_notes(directory)
    expected = notes.get("base_fingerprint")
    if (
        expected
        and _comparable(str(notes.get("base_dtype")), _dtype(policy.model))
        and expected != fingerprint(policy.model, policy.model.state_dict())
    ):
        raise _does_not_fit(directory, policy, "its base had other weights")
    try:
        inject_adapter(policy.model, name, config)
        parameters = {_file_key(key, name): value for key, value in adapter_parameters(policy.model, name).items()}
        if parameters.keys() != tensors.keys():
            raise ValueError(f"{min(parameters.keys() ^ tensors.keys())} is only in one of them")
        if hasattr(policy.model.get_output_embeddings(), "base_layer"):
            raise ValueError("it changes the output head, which may share its weights with the embeddings")
        with torch.no_grad():
            for key, parameter in parameters.items():
                parameter.copy_(tensors[key])
    except (ValueError, RuntimeError) as error:  # of peft, that finds no such layers; of torch, for a wrong shape
        remove_adapter(policy.model, name)
        raise _does_not_fit(directory, policy, str(error)) from error
    return replace(policy, adapter=name)


def save_adapter(policy: Policy, directory: Path, state_dict: Mapping[str, torch.Tensor] | None = None) -> None:
    """Write the policy's adapter into an existing directory. `state_dict` is the model's whole state where the model
    itself holds only a part of it.

    Raises PolicyError if the base was never loaded from anywhere, so that nothing could be named to load it from.
    """
    name, model = str(policy.adapter), policy.model
    state = model.state_dict() if state_dict is None else state_dict
    config = cast("LoraConfig", copy.copy(model.peft_config[name]))
    config.inference_mode = True
    config.target_modules = sorted(cast("set[str]", config.target_modules))  # pyright: ignore[reportAttributeAccessIssue]
    config.base_model_name_or_path = str(model.name_or_path)
    if not config.base_model_name_or_path:
        raise PolicyError(
            f"the adapter '{name}' cannot be saved: its base was made in memory, and an adapter only says where its "
            "base is. Save the base with save_policy, load it with load_policy, and put the adapter on that."
        )
    config.save_pretrained(str(directory))
    names = set(adapter_parameters(model, name))
    tensors = {_file_key(key, name): value.detach().contiguous() for key, value in state.items() if key in names}
    save_file(tensors, directory / WEIGHTS, metadata={"format": "pt"})
    notes = {"adapter": name, "base_fingerprint": fingerprint(model, state), "base_dtype": _dtype(model)}
    (directory / NOTES).write_text(json.dumps(notes, indent=2) + "\n", encoding="utf-8")


def is_adapter(directory: Path) -> bool:
    """Whether a directory holds an adapter."""
    return (directory / CONFIG).is_file()


def base_name(directory: Path) -> str:
    """The name or directory of the base of an adapter directory's adapter. Raises PolicyError."""
    try:
        name = json.loads((directory / CONFIG).read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _unreadable(directory, f"{CONFIG}: {type(error).__name__}: {error}") from error
    if not isinstance(name, str) or not name:
        raise _unreadable(directory, f"{CONFIG} names no base (base_model_name_or_path is {name!r})")
    if is_adapter(expanded(name)):
        raise _unreadable(directory, f"its base '{name}' is itself an adapter; merge that first (evoseek export)")
    return name


def adapter_name(directory: Path) -> str:
    """The name that the adapter of a directory had when it was saved; peft's usual name if none was recorded."""
    return str(_read_notes(directory).get("adapter", "default"))


def fingerprint(model: PreTrainedModel, state: Mapping[str, torch.Tensor]) -> str:
    """A short text that tells bases apart: the name, shape and some values of every weight tensor.

    The values are rounded to bfloat16, so that a base loaded in float32 and in bfloat16 is the same one. A change that
    affects none of these values, or is below the rounding, is not detected. `state` holds the model's weights.
    """
    digest = hashlib.sha256()
    for name in sorted(name for name, _ in model.named_parameters() if ".lora_" not in name):
        values = state[name].detach().flatten()
        probed = values[torch.arange(_PROBED, device=values.device) * (len(values) - 1) // (_PROBED - 1)]
        digest.update(f"{name.replace('.base_layer.', '.')} {tuple(state[name].shape)}".encode())
        digest.update(probed.to(torch.bfloat16).view(torch.int16).cpu().numpy().tobytes())
    return digest.hexdigest()


def _comparable(one: str, other: str) -> bool:
    """Whether a base has one fingerprint in both types of number. Not where one is float16: a value that is rounded to
    it and then to bfloat16 may end elsewhere than one that is rounded to bfloat16 at once."""
    return one == other or {one, other} == {"float32", "bfloat16"}


def _dtype(model: PreTrainedModel) -> str:
    return str(model.dtype).removeprefix("torch.")


def _read(directory: Path) -> tuple[LoraConfig, dict[str, torch.Tensor]]:
    """Settings and tensors of an adapter directory. Raises PolicyError."""
    check_peft()
    from peft import LoraConfig, PeftConfig

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            config = PeftConfig.from_pretrained(str(directory))
        tensors = load_file(directory / WEIGHTS)
    except Exception as error:  # the errors for damaged files are not documented
        raise _unreadable(directory, f"{type(error).__name__}: {error}") from error
    foreign = [key for key in tensors if not _PLAIN.fullmatch(key)]
    if not isinstance(config, LoraConfig) or foreign or not isinstance(config.init_lora_weights, bool):
        kind = config.peft_type if not isinstance(config, LoraConfig) else foreign[0] if foreign else "its own init"
        raise _unreadable(directory, f"it holds more or other than plain LoRA on linear layers ({kind})")
    return config, tensors


def _read_notes(directory: Path) -> dict[str, object]:
    """What was recorded besides; nothing for an adapter that another program wrote."""
    path = directory / NOTES
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
    except (OSError, ValueError, TypeError) as error:
        raise _unreadable(directory, f"{NOTES}: {error}") from error


def _file_key(key: str, adapter: str) -> str:
    return _PREFIX + key.replace(f".{adapter}.weight", ".weight")


def _unreadable(directory: Path, why: str) -> PolicyError:
    return PolicyError(
        f"the adapter in '{directory}' cannot be used: {why}. Expected a directory written by evoseek or peft with a "
        f"plain LoRA adapter ({CONFIG}, {WEIGHTS}). Restore it from a copy, or merge the adapter with the tool that "
        "made it and give the merged model."
    )


def _does_not_fit(directory: Path, policy: Policy, why: str) -> PolicyError:
    return PolicyError(
        f"the adapter in '{directory}' does not fit the base '{policy.name}': {why}. Give the base that the adapter "
        f"was trained on (base_model_name_or_path in its {CONFIG})."
    )
