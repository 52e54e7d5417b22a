"""LoRA (arXiv 2106.09685): a policy that is a low-rank change of a frozen base, made with peft.

    W x  becomes  W x + (alpha / rank) B A x        A: [rank, in], random;  B: [out, rank], zero at first

for the linear layers of a model's body. The output head and the embeddings are never adapted: the learner and the
sampler use them separately. On disk an adapter has peft's own layout, so that transformers and peft load it too:

adapter_config.json          rank, alpha, targets, and the name or place of the base
adapter_model.safetensors    A and B of every layer
evoseek.json                 the adapter's name, and the base's fingerprint, which detects another base, with the
                             type of number in which it was computed
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
from types import MethodType
from typing import TYPE_CHECKING, Any, cast

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from evoseek.errors import PolicyError
from evoseek.models.cpu_matmul import adapted_product, is_small, multiplies_adapters
from evoseek.models.policy import Policy, find_adapter_layers, has_adapters
from evoseek.models.source import ADAPTER, ADAPTER_WEIGHTS, unreadable_adapter

if TYPE_CHECKING:
    from peft import LoraConfig


NOTES = "evoseek.json"

_PREFIX = "base_model.model."  # peft's, in files
_PLAIN = re.compile(rf"{re.escape(_PREFIX)}.+\.lora_[AB]\.weight")
_PROBED = 64  # number of values of each of the base's tensors that enter its fingerprint


def add_adapter(policy: Policy, name: str, *, rank: int, alpha: float, seed: int = 0) -> Policy:
    """Return a policy that is `policy`'s model with a new adapter over it, at first equal to it.

    `policy` stays the base and shares the model, whose own weights are frozen from now on. The same seed gives the same
    bits on every device. The adapter's weights are always float32. Raises PolicyError if peft is not
    installed, the name is taken or invalid, or the model's body has no linear layers.
    """
    check_free(policy.model, name)
    from peft import LoraConfig

    targets = _linear_layers(policy.model)
    config = LoraConfig(r=rank, lora_alpha=cast(int, alpha), target_modules=targets, task_type="CAUSAL_LM")
    with torch.random.fork_rng(devices=[]):  # peft draws on the CPU
        torch.manual_seed(seed)
        inject_adapter(policy.model, name, config)
    return replace(policy, adapter=name)


def plain_model(policy: Policy) -> PreTrainedModel:
    """Return a copy of the model with the policy's adapter merged, or the model itself without adapters. Raises
    PolicyError if the merged weights are not finite."""
    if not has_adapters(policy.model):
        return policy.model
    model = copy.deepcopy(policy.model)
    if policy.adapter is not None:
        for layer in find_adapter_layers(model).values():
            try:
                layer.merge(safe_merge=True, adapter_names=[policy.adapter])
            except ValueError as error:
                raise PolicyError(
                    f"the adapter '{policy.adapter}' of '{policy.name}' cannot be merged: {error} Go back to an "
                    "earlier checkpoint."
                ) from error
    _strip(model)
    return model


def inject_adapter(model: PreTrainedModel, name: str, config: LoraConfig) -> None:
    """Add an adapter to a model and turn it on, with float32 weights to train. It uses peft's function: the one of
    transformers refuses releases of peft that can do this."""
    from peft import inject_adapter_in_model

    config.base_model_name_or_path = str(model.name_or_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a warning that there is another adapter, which is intended here
        inject_adapter_in_model(config, model, name)
    model._hf_peft_config_loaded = True  # pyright: ignore[reportPrivateUsage]
    small = is_small(model)
    for layer in find_adapter_layers(model).values():
        layer.set_adapter(name)
        base = layer.get_base_layer()
        if not small and isinstance(base, nn.Linear) and multiplies_adapters(base.weight):
            cast("Any", layer).forward = MethodType(_forward, layer)  # a deep copy of the layer has its own
    for parameter in adapter_parameters(model, name).values():
        parameter.data = parameter.data.float()
    model.train(model.training)  # the new modules too


def _forward(layer: Any, input: torch.Tensor, *others: Any, **named: Any) -> torch.Tensor:
    """Return the layer's forward pass, by `adapted_product` where one adapter is on."""
    base, active = layer.base_layer, layer.active_adapters
    is_plain = len(active) == 1 and active[0] in layer.lora_A and not (layer.disable_adapters or layer.merged)
    is_usual = input.dtype == base.weight.dtype and not (layer.training or torch.is_autocast_enabled("cpu"))
    if not (is_plain and is_usual) or others or named:
        return type(layer).forward(layer, input, *others, **named)
    name = active[0]
    adapter = layer.lora_A[name].weight, layer.lora_B[name].weight, layer.scaling[name]
    return adapted_product(input, base.weight, base.bias, *adapter)


def adapter_parameters(model: PreTrainedModel, name: str) -> dict[str, nn.Parameter]:
    """Return the parameters of an adapter by name."""
    ending = re.compile(rf"\.lora_[AB]\.{name}\.weight")
    return {key: parameter for key, parameter in model.named_parameters() if ending.search(key)}


def check_free(model: PreTrainedModel, name: str) -> None:
    """Raise PolicyError unless an adapter of this name can be added."""
    check_peft()
    if not name.isidentifier() or "lora_" in name:
        raise PolicyError(f"got {name!r} as an adapter's name; expected letters, digits and _, without 'lora_'.")
    if has_adapters(model) and name in model.peft_config:
        raise PolicyError(
            f"the model has an adapter '{name}' already (it has {', '.join(model.peft_config)}). Choose another name."
        )


def check_peft() -> None:
    """Raise PolicyError if peft is not installed."""
    try:
        import peft  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        raise PolicyError(
            "Adapters need peft, which is not installed. Install it with `pip install 'evoseek[lora]'`, or train all "
            "weights (lora.rank = 0)."
        ) from error


def load_adapter(policy: Policy, name: str, directory: Path) -> Policy:
    """Load an adapter's directory over the policy's model; see `add_adapter`. Raises PolicyError also if it cannot be
    read, is more than plain LoRA, or was made for another base. Do not use the model after such an error."""
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
    except (ValueError, RuntimeError) as error:  # of peft, if it finds no such layers; of torch, for a wrong shape
        raise _does_not_fit(directory, policy, str(error)) from error
    return replace(policy, adapter=name)


def save_adapter(policy: Policy, directory: Path, state_dict: Mapping[str, torch.Tensor] | None = None) -> None:
    """Write the policy's adapter into an existing directory. `state_dict` is the model's whole state if the model holds
    only a part of it. Raises PolicyError if the base was made in memory, so that it could not be loaded again."""
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
    save_file(tensors, directory / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    notes = {"adapter": name, "base_fingerprint": fingerprint(model, state), "base_dtype": _dtype(model)}
    (directory / NOTES).write_text(json.dumps(notes, indent=2) + "\n", encoding="utf-8")


def adapter_name(directory: Path) -> str:
    """Return the recorded name of the adapter in a directory; peft's usual name if none was recorded."""
    return str(_read_notes(directory).get("adapter", "default"))


def fingerprint(model: PreTrainedModel, state: Mapping[str, torch.Tensor]) -> str:
    """Return a short text that distinguishes bases: a digest of names, shapes and some values of all weights. Values
    are rounded to bfloat16, so that a base has the same fingerprint in float32 and in bfloat16."""
    digest = hashlib.sha256()
    for name in sorted(name for name, _ in model.named_parameters() if ".lora_" not in name):
        values = state[name].detach().flatten()
        probed = values[torch.arange(_PROBED, device=values.device) * (len(values) - 1) // (_PROBED - 1)]
        digest.update(f"{name.replace('.base_layer.', '.')} {tuple(state[name].shape)}".encode())
        digest.update(probed.to(torch.bfloat16).view(torch.int16).cpu().numpy().tobytes())
    return digest.hexdigest()


def _linear_layers(model: PreTrainedModel) -> list[str]:
    """Return the names of a model's linear layers except the output head. Raises PolicyError if there are none."""
    head = model.get_output_embeddings()
    found = {
        path.rpartition(".")[2]
        for path, module in model.named_modules()
        if (isinstance(module, nn.Linear | Conv1D) or hasattr(module, "base_layer"))
        and module is not head
        and not re.search(r"\.(base_layer|lora_)", path)
    }
    if not found:
        raise PolicyError(
            f"an adapter on {type(model).__name__} would change nothing: its body has no linear layers. Train all "
            "weights (lora.rank = 0), or choose another model."
        )
    return sorted(found)


def _strip(model: PreTrainedModel) -> None:
    """Replace the layers with adapters by the base's own layers, whose weights may be trained again."""
    for path, layer in find_adapter_layers(model).items():
        model.set_submodule(path, layer.get_base_layer())
    model.__dict__.pop("peft_config", None)
    model._hf_peft_config_loaded = False  # pyright: ignore[reportPrivateUsage]
    model.requires_grad_(True)


def _comparable(one: str, other: str) -> bool:
    """Return whether a base has one fingerprint in both types. In float16 it was rounded twice and may differ."""
    return one == other or {one, other} == {"float32", "bfloat16"}


def _dtype(model: PreTrainedModel) -> str:
    return str(model.dtype).removeprefix("torch.")


def _read(directory: Path) -> tuple[LoraConfig, dict[str, torch.Tensor]]:
    check_peft()
    from peft import LoraConfig, PeftConfig

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            config = PeftConfig.from_pretrained(str(directory))
        tensors = load_file(directory / ADAPTER_WEIGHTS)
    except Exception as error:  # errors for damaged files are not documented
        raise unreadable_adapter(directory, f"{type(error).__name__}: {error}") from error
    foreign = [key for key in tensors if not _PLAIN.fullmatch(key)]
    if not isinstance(config, LoraConfig) or foreign or not isinstance(config.init_lora_weights, bool):
        kind = config.peft_type if not isinstance(config, LoraConfig) else foreign[0] if foreign else "its own init"
        raise unreadable_adapter(directory, f"it holds more or other than plain LoRA on linear layers ({kind})")
    return config, tensors


def _read_notes(directory: Path) -> dict[str, object]:
    """Read the notes beside an adapter; empty for an adapter that another program wrote."""
    path = directory / NOTES
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
    except (OSError, ValueError, TypeError) as error:
        raise unreadable_adapter(directory, f"{NOTES}: {error}") from error


def _file_key(key: str, adapter: str) -> str:
    return _PREFIX + key.replace(f".{adapter}.weight", ".weight")


def _does_not_fit(directory: Path, policy: Policy, why: str) -> PolicyError:
    return PolicyError(
        f"the adapter in '{directory}' does not fit the base '{policy.name}': {why}. Give the base that the adapter "
        f"was trained on (base_model_name_or_path in its {ADAPTER})."
    )
