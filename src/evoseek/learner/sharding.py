"""A model sharded over the ranks with FSDP2 (arXiv 2304.11277, torch's `fully_shard`): each holds some rows of every
parameter, gradient and optimizer tensor, and a layer is gathered only while it is computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import cast

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor

from evoseek.learner.distributed import Ranks
from evoseek.learner.logprobs import LogprobModel
from evoseek.learner.shards import read_rows


def shard_module(module: nn.Module, ranks: Ranks) -> None:
    """Shard a module's parameters over the ranks, in place; does nothing with a single rank.

    Call it on what computes the loss's inputs (a LogprobModel or ValueModel with the same weights on every rank),
    before an optimizer is made. Each element of an outermost ModuleList (a decoder layer) is put together for itself;
    embeddings, head and norms belong to the root and stay together from its forward to the end of its backward pass,
    so that a head recomputed in the backward pass finds them. Gradients are summed over the ranks, not averaged: the
    loss is already a share of the whole batch. All ranks have to make the same forward and backward passes.
    """
    if ranks.size == 1:
        return
    mesh = init_device_mesh(ranks.device.type, (ranks.size,))
    for layer in _layers(module):
        fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh, reshard_after_forward=False)
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.set_gradient_divide_factor(1.0)
            part.set_force_sum_reduction_for_comms(True)  # else a factor is multiplied in by NCCL; gloo cannot
    module.register_forward_hook(_reshard_without_gradient)


def read_weights(forward: LogprobModel, files: Sequence[Path], ranks: Ranks) -> None:
    """Read the weights of a forward pass that was sharded without them: of every tensor this rank's rows alone. Then
    probe it. A collective, since that makes passes; none is begun where a rank could not read its rows."""
    model = forward.model
    model.load_state_dict(read_rows(files, model.state_dict()), strict=False, assign=True)
    model.tie_weights()
    ranks.barrier()
    register_fsdp_forward_method(forward, "probe_model")
    with torch.no_grad():
        forward.probe_model()
    cast(FSDPModule, forward).reshard()


def full_state_dict(model: nn.Module, ranks: Ranks) -> dict[str, torch.Tensor]:
    """The parameters and persistent buffers, whole, on the first rank's CPU (a tied one once), for
    `save_pretrained(state_dict=...)`; empty on the others.

    A collective. Never more than one parameter is together on any other rank.
    """
    kept = model.state_dict(keep_vars=True).keys()
    buffers = ((name, buffer) for name, buffer in model.named_buffers() if name in kept)
    found: dict[str, torch.Tensor] = {}
    for name, tensor in chain(model.named_parameters(), buffers):
        whole = _whole(tensor)
        if ranks.is_first:
            found[name] = whole.cpu()
    return found


def copy_weights(sharded: nn.Module, plain: nn.Module) -> None:
    """Copy the trained parameters of a sharded model into this rank's whole copy of it, one at a time.

    The two have the same architecture and began with the same weights; frozen parameters are left as they are. A
    collective.
    """
    targets = dict(plain.named_parameters())
    with torch.no_grad():
        for name, parameter in sharded.named_parameters():
            if parameter.requires_grad:
                targets[name].copy_(_whole(parameter))


def _layers(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        yield from child.children() if isinstance(child, nn.ModuleList) else _layers(child)


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _reshard_without_gradient(module: nn.Module, _: object, __: object) -> None:
    """What a backward pass does at its end: without one the root's parameters would stay together, and grow stale."""
    if isinstance(module, FSDPModule) and not torch.is_grad_enabled():
        module.reshard()
