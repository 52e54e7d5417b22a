"""LoRA (arXiv 2106.09685): a policy that is a low-rank change of a frozen base, made with peft.

    W x  becomes  W x + (alpha / rank) B A x        A: [rank, in], random;  B: [out, rank], zero at first

for the linear layers of a model's body. The output head and the embeddings are never adapted: the learner and the
sampler use them on their own.
"""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from evoseek.errors import PolicyError
from evoseek.policy.policy import Policy, find_adapter_layers, has_adapters

if TYPE_CHECKING:
    from peft import LoraConfig

ALL_LINEAR = "all-linear"


def add_adapter(
    policy: Policy, name: str, *, rank: int, alpha: float, targets: str | Sequence[str] = ALL_LINEAR, seed: int = 0
) -> Policy:
    """A policy that is `policy`'s model with a new adapter over it, at first equal to it.

    `policy` stays the base and shares the model, whose own weights are frozen from now on. `targets` are names of
    linear layers (`q_proj`), or `all-linear` for all but the output head. The same seed gives the same bits on every
    device. The adapter's weights are float32 whatever the base's are. Raises PolicyError if peft is not installed, the
    name is taken or no name, or a target is no linear layer of the model's body.
    """
    check_free(policy.model, name)
    if rank < 1 or not alpha > 0:
        raise PolicyError(f"got an adapter of rank {rank} and alpha {alpha}; expected a rank of 1 or more, alpha > 0.")
    config = _lora_config(
        r=rank, lora_alpha=alpha, target_modules=_targets(policy.model, targets), task_type="CAUSAL_LM"
    )
    with torch.random.fork_rng(devices=[]):  # peft draws on the CPU
        torch.manual_seed(seed)
        inject_adapter(policy.model, name, config)
    return replace(policy, adapter=name)


def plain_model(policy: Policy) -> PreTrainedModel:
    """The policy as a model without adapters: its own one merged into the weights, in a copy (twice the memory).

    A model without adapters is returned unchanged. Raises PolicyError if the merged weights are not finite.
    """
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
    """Add an adapter to a model; it is on afterwards, and trained with float32 weights."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a warning that there is another adapter, which is intended here
        model.add_adapter(config, name)
    for parameter in adapter_parameters(model, name).values():
        parameter.data = parameter.data.float()
    model.train(model.training)  # the new modules too


def remove_adapter(model: PreTrainedModel, name: str) -> None:
    """Remove the remains of an adapter whose creation failed."""
    configs: dict[str, Any] = getattr(model, "peft_config", {})
    configs.pop(name, None)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Adapter .* was active")
        for layer in find_adapter_layers(model).values():
            layer.delete_adapter(name)
    if not configs:
        _strip(model)


def adapter_parameters(model: PreTrainedModel, name: str) -> dict[str, nn.Parameter]:
    """The model's parameters that belong to an adapter, by name."""
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


def _targets(model: PreTrainedModel, targets: str | Sequence[str]) -> list[str]:
    """Names of the linear layers to adapt. Raises PolicyError."""
    head = model.get_output_embeddings()
    layers = {
        path.rpartition(".")[2]
        for path, module in model.named_modules()
        if (isinstance(module, nn.Linear | Conv1D) or hasattr(module, "base_layer"))
        and module is not head
        and not re.search(r"\.(base_layer|lora_)", path)
    }
    asked = layers if targets == ALL_LINEAR else {targets} if isinstance(targets, str) else set(targets)
    if unknown := sorted(asked - layers):
        raise PolicyError(
            f"got {', '.join(unknown)} as targets of an adapter, but the body of {type(model).__name__} has no such "
            f"linear layers. It has {', '.join(sorted(layers)) or 'none'}. Name some of these, or '{ALL_LINEAR}'."
        )
    if not asked:
        raise PolicyError(
            f"an adapter on {type(model).__name__} would change nothing: no target was given or the model's body has "
            f"no linear layers. It has {', '.join(sorted(layers)) or 'none'}. Name some of these, or '{ALL_LINEAR}'."
        )
    return sorted(asked)


def _strip(model: PreTrainedModel) -> None:
    """Replace the layers with adapters by the base's own layers, whose weights may be trained again."""
    for path, layer in find_adapter_layers(model).items():
        model.set_submodule(path, layer.get_base_layer())
    model.__dict__.pop("peft_config", None)
    model._hf_peft_config_loaded = False  # pyright: ignore[reportPrivateUsage]
    model.requires_grad_(True)


def _lora_config(**settings: Any) -> LoraConfig:
    from peft import LoraConfig

    return LoraConfig(**settings)
