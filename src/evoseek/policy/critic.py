"""A critic: the body of a policy with a head that predicts one number per token, as an ordinary transformers model."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import torch
from transformers import AutoModelForTokenClassification, PreTrainedModel

from evoseek.errors import PolicyError
from evoseek.files import expanded, replace_directory
from evoseek.policy.gguf import load_gguf
from evoseek.policy.load import first_line, place, quietly
from evoseek.policy.lora import base_name, is_adapter
from evoseek.policy.source import find_policy, is_gguf

_HEADS = ("score.", "classifier.")  # what transformers calls the head of a token classifier


def load_critic(name_or_dir: str, *, device: str = "cpu") -> PreTrainedModel:
    """The critic saved in a directory, or a new one with the body of a policy and a head that predicts 0 everywhere.

    The body of an adapter is its base's. In float32 and in evaluation mode. Raises PolicyError.
    """
    source = find_policy(name_or_dir)
    if is_adapter(expanded(source)):
        source = find_policy(base_name(expanded(source)))
    try:
        with quietly():
            loaded = _load(source)
        model, report = cast("tuple[PreTrainedModel, dict[str, set[str]]]", loaded)
        missing = sorted(report["missing_keys"])
        if foreign := [name for name in missing if not name.startswith(_HEADS)]:
            raise ValueError(f"{len(foreign)} of the body's weights are not in the files, {foreign[0]} for one")
        place(model, device)
    except Exception as error:  # what a damaged directory or an unsupported model raises is not documented
        raise PolicyError(
            f"a critic could not be made of '{name_or_dir}': {first_line(error)} Expected a model that "
            "transformers can load for token classification, such as Llama, Qwen2 or Qwen3. Choose another model, or "
            "an algorithm without a critic (credit.name other than gae)."
        ) from error
    with torch.no_grad():
        for name in missing:
            model.get_parameter(name).zero_()
    return model


def _load(source: str) -> object:
    if is_gguf(source):
        return load_gguf(source, torch.float32, AutoModelForTokenClassification, num_labels=1)
    return AutoModelForTokenClassification.from_pretrained(
        source,
        num_labels=1,
        dtype=torch.float32,
        attn_implementation="sdpa",
        use_safetensors=True,
        trust_remote_code=False,
        output_loading_info=True,
    )


def save_critic(model: PreTrainedModel, directory: Path, state_dict: dict[str, torch.Tensor] | None = None) -> None:
    """Write the critic so that `load_critic(directory)` loads it; whole or not at all. `state_dict` holds its weights
    where the model itself has only a part of them."""
    with replace_directory(directory) as partial, quietly():
        model.save_pretrained(partial, state_dict=state_dict)
