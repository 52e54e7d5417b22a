"""Activation checkpointing: the layers' activations are computed again in the backward pass instead of being kept."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import MethodType
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from evoseek.errors import PolicyError
from evoseek.policy.packed import attention_named


def checkpoint_activations(model: PreTrainedModel) -> None:
    """Let each decoder layer keep its input alone for the backward pass (arXiv 1604.06174): memory falls from all
    activations to one state per token and layer plus one layer's activations, for one more forward pass.

    The model may stay in evaluation mode, dropout off (transformers' own switch acts in training mode only), and in
    passes without gradient or with a cache nothing changes. Gradients are the same bit for bit.
    Raises PolicyError if the model has no layers that transformers can checkpoint.
    """
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise PolicyError(
            f"{type(model).__name__} has no layers that allow gradient checkpointing. Turn it off, or choose a model "
            "of a family that transformers supports it for, such as Llama, Qwen2 or Qwen3."
        )
    for layer in layers:
        layer.__dict__["checkpointed_config"] = model.config.get_text_config()
        layer.forward = MethodType(_forward, layer)  # a method, so that a deep copy of the layer has its own


def _forward(layer: Any, *inputs: Any, **others: Any) -> Any:
    """The layer's forward pass. Attention in the second computation is that of the first, whatever is then set."""
    forward = type(layer).forward
    if not torch.is_grad_enabled() or others.get("past_key_values") is not None:
        return forward(layer, *inputs, **others)
    config = layer.checkpointed_config
    used: str = config._attn_implementation

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), attention_named(config, used)

    return checkpoint(
        forward, layer, *inputs, use_reentrant=False, preserve_rng_state=False, context_fn=contexts, **others
    )
