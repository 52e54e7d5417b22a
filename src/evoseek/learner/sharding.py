"""A model sharded over the ranks with FSDP2 (arXiv 2304.11277, torch's `fully_shard`): each holds some rows of every
parameter, gradient and optimizer tensor, and a layer is gathered only while it is computed. A policy may be loaded
without weights (`load_deferred`) and sharded first: each rank then reads its own rows, so no process ever holds all.

On disk, each rank writes its rows, and any number of ranks can read them:

    policy.optimizer/rank-00000-of-00002.safetensors    the first rank's rows, and what is the same on every rank
    policy.optimizer/rank-00001-of-00002.safetensors    the second's

A file's metadata holds, for each tensor, the whole shape and the file's first row (index of dimension 0).
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, Shard
from torch.nn.modules.module import register_module_parameter_registration_hook
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.utils.hub import cached_file, get_checkpoint_shard_files

from evoseek.errors import CheckpointError
from evoseek.learner.distributed import Ranks
from evoseek.learner.logprobs import LogprobModel
from evoseek.models.load import generation_config, load_tokenizer, quietly
from evoseek.models.policy import Policy
from evoseek.models.source import find_policy, is_adapter, is_gguf
from evoseek.storage.files import expanded

_WHOLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_FLOATS = ("F32", "F16", "BF16")


def shard_module(module: nn.Module, ranks: Ranks) -> None:
    """Shard a module's parameters over the ranks, in place; does nothing with a single rank.

    Call it on a LogprobModel or ValueModel with the same weights on every rank, before making an optimizer. Each
    element of an outermost ModuleList (a decoder layer) is gathered separately. Embeddings, head and norms belong to
    the root and stay gathered from its forward to the end of its backward pass, so that a recomputed head finds them.
    Gradients are summed over the ranks, not averaged: the loss is already a share of the whole batch. All ranks must
    make the same forward and backward passes.
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
            part.set_force_sum_reduction_for_comms(True)  # otherwise NCCL multiplies by a factor, which gloo cannot
    module.register_forward_hook(_reshard_without_gradient)


def read_weights(forward: LogprobModel, files: Sequence[Path], ranks: Ranks) -> None:
    """Read the weights of a forward pass that was sharded without them (only this rank's rows), then probe it. A
    collective, since probing makes passes; they begin only if every rank could read its rows."""
    model = forward.model
    model.load_state_dict(read_rows(files, model.state_dict()), strict=False, assign=True)
    model.tie_weights()
    ranks.barrier()
    register_fsdp_forward_method(forward, "probe_model")
    with torch.no_grad():
        forward.probe_model()
    cast(FSDPModule, forward).reshard()


def full_state_dict(model: nn.Module, ranks: Ranks) -> dict[str, torch.Tensor]:
    """Return the whole parameters and persistent buffers on the first rank's CPU (tied ones once), and nothing on the
    others. A collective, in which other ranks hold at most one whole parameter."""
    kept = model.state_dict(keep_vars=True).keys()
    buffers = ((name, buffer) for name, buffer in model.named_buffers() if name in kept)
    found: dict[str, torch.Tensor] = {}
    for name, tensor in chain(model.named_parameters(), buffers):
        whole = _whole(tensor)
        if ranks.is_first:
            found[name] = whole.cpu()
    return found


def copy_weights(sharded: nn.Module, plain: nn.Module) -> None:
    """Copy the trained parameters of a sharded model into this rank's whole copy, one at a time; a collective."""
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
    """Reshard as at the end of a backward pass: otherwise the root's parameters would stay gathered and grow stale."""
    if isinstance(module, FSDPModule) and not torch.is_grad_enabled():
        module.reshard()


def write_shards(tensors: Mapping[str, torch.Tensor], directory: Path, ranks: Ranks) -> None:
    """Write this rank's file: its rows of every DTensor and, on the first rank, the plain tensors. Every rank calls it
    with the same names. Raises OSError or SafetensorError."""
    held: dict[str, torch.Tensor] = {}
    places: dict[str, dict[str, object]] = {}
    for name, tensor in tensors.items():
        first, last = _own_rows(tensor) if isinstance(tensor, DTensor) else (0, int(ranks.is_first))
        if first < last:
            held[name] = (tensor.to_local() if isinstance(tensor, DTensor) else tensor).contiguous()
            places[name] = {"shape": list(tensor.shape), "first": first}
    directory.mkdir(exist_ok=True)
    path = directory / f"rank-{ranks.rank:05d}-of-{ranks.size:05d}.safetensors"
    save_file(held, path, metadata={"shards": json.dumps(places)})
    with path.open("rb") as file:
        os.fsync(file.fileno())  # here: no other machine can flush what this one wrote to a shared disk


def read_shards(directory: Path, parameters: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Read tensors by name, `<parameter>/<key>`, from files of any number of ranks.

    If the parameter is a DTensor of the same shape, the tensor is sharded like it, and only its rows are read; every
    other tensor is read whole, onto the CPU. Raises CheckpointError if rows are missing.
    """
    with ExitStack() as files:
        pieces: dict[str, list[_Piece]] = {}
        for path in sorted(directory.glob("*.safetensors")):
            file: Any = files.enter_context(safe_open(path, framework="pt"))
            for name, place in json.loads(file.metadata()["shards"]).items():
                pieces.setdefault(name, []).append(_Piece(file, tuple(place["shape"]), place["first"]))
        return {name: _place(name, found, parameters.get(name.rsplit("/", 1)[0])) for name, found in pieces.items()}


def read_rows(files: Sequence[Path], targets: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Read tensors by name from files that hold them whole, with the data types of their targets. If a target is a
    DTensor, the tensor is sharded like it, and only this rank's rows are read."""
    with ExitStack() as opened:
        read: dict[str, torch.Tensor] = {}
        for path in files:
            file: Any = opened.enter_context(safe_open(path, framework="pt"))
            for name in targets.keys() & set(file.keys()):
                piece = _Piece(file, tuple(file.get_slice(name).get_shape()), 0)
                found, target = _place(name, [piece], targets[name]), targets[name]
                read[name] = found.to(target.dtype) if isinstance(found, DTensor) else found.to(target)
        return read


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows of one tensor in one file, from `first` on; `shape` is the whole tensor's."""

    file: Any
    shape: tuple[int, ...]
    first: int


def _place(name: str, pieces: Sequence[_Piece], parameter: torch.Tensor | None) -> torch.Tensor:
    shape = pieces[0].shape
    if not shape:
        return pieces[0].file.get_tensor(name)
    if not isinstance(parameter, DTensor) or tuple(parameter.shape) != shape:
        return _read_rows(name, pieces, 0, shape[0])
    local = _read_rows(name, pieces, *_own_rows(parameter)).to(parameter.device_mesh.device_type)
    return DTensor.from_local(
        local,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )


def _read_rows(name: str, pieces: Sequence[_Piece], first: int, last: int) -> torch.Tensor:
    """Read rows [first, last) from the pieces that hold them; no rows give an empty tensor of the right width."""
    found: list[torch.Tensor] = []
    for piece in sorted(pieces, key=lambda piece: piece.first):
        stored = piece.file.get_slice(name)
        begin = max(first - piece.first, 0)
        end = min(last - piece.first, stored.get_shape()[0])
        if begin < end or not found:
            found.append(stored[begin : max(begin, end)])
    rows = torch.cat(found)
    if len(rows) != last - first:
        raise CheckpointError(
            f"The tensor {name} should have rows {first} to {last}, but the files hold {len(rows)} of them. A rank's "
            "file is missing. Restore it from a copy, or delete the checkpoint to use the one before."
        )
    return rows


def _own_rows(tensor: DTensor) -> tuple[int, int]:
    """Return the rows [first, last) of this rank. Raises CheckpointError unless FSDP sharded them."""
    mesh, rows = tensor.device_mesh, tensor.shape[0]
    each = -(-rows // mesh.size())
    first = min(mesh.get_local_rank() * each, rows)
    last = min(first + each, rows)
    if tuple(tensor.placements) != (Shard(0),) or len(tensor.to_local()) != last - first:
        raise CheckpointError(
            f"A tensor of shape {tuple(tensor.shape)} is sharded as {tensor.placements}. Expected rows in equal parts "
            "(one mesh dimension, Shard(0)). Shard it with shard_module."
        )
    return first, last


def load_deferred(name_or_dir: str) -> Policy | None:
    """Load a policy, as `load_policy`, in float32 and evaluation mode, but with its parameters on the device `meta`; it
    names the files that hold them.

    None for what must be read whole, or cannot be read, which `load_policy` then reports: an adapter, a GGUF file, and
    files whose tensors do not match the model by name and shape.
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
    """Return the safetensors files that transformers would read, in its order of preference."""
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
    """Put the parameters of modules made in the block on the device `meta`. Buffers are computed, since files lack some
    of them (frequencies of rotary embeddings)."""

    def emptied(module: nn.Module, name: str, parameter: nn.Parameter | None) -> nn.Parameter | None:
        if parameter is None or parameter.is_meta:
            return None  # keeps a tied parameter
        return nn.Parameter(parameter.to("meta"), requires_grad=parameter.requires_grad)

    # the hook's result replaces the parameter, which its declared type does not say
    handle = register_module_parameter_registration_hook(emptied)  # pyright: ignore[reportArgumentType]
    try:
        yield
    finally:
        handle.remove()


def _holds(files: Sequence[Path], model: PreTrainedModel) -> bool:
    """Return whether the files hold every parameter and saved buffer once, tied ones under one of their names."""
    found = _tensors(files)
    names: dict[int, list[str]] = {}
    state: Mapping[str, torch.Tensor] = model.state_dict(keep_vars=True)
    for name, tensor in state.items():
        names.setdefault(id(tensor), []).append(name)
    held = [[name for name in tied if name in found] for tied in names.values()]
    return all(len(own) == 1 and found[own[0]] == list(state[own[0]].shape) for own in held)


def _tensors(files: Sequence[Path]) -> dict[str, list[int]]:
    """Return the shapes of all float tensors, by name."""
    with ExitStack() as opened:
        found: dict[str, list[int]] = {}
        for path in files:
            file: Any = opened.enter_context(safe_open(path, framework="pt"))
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118, it is no mapping
            found |= {name: part.get_shape() for name, part in slices.items() if part.get_dtype() in _FLOATS}
        return found
