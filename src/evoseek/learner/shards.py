"""Tensors that are spread over ranks, on disk: each rank writes its rows, any number of ranks read theirs.

    policy.optimizer/rank-00000-of-00002.safetensors    the first rank's rows, and all that is the same on every rank
    policy.optimizer/rank-00001-of-00002.safetensors    the second's

A file's metadata holds for each tensor the shape of the whole and the first row (index of dimension 0) that it holds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch.distributed.tensor import DTensor, Shard

from evoseek.errors import CheckpointError
from evoseek.learner.distributed import Ranks


def write_shards(tensors: Mapping[str, torch.Tensor], directory: Path, ranks: Ranks) -> None:
    """Write this rank's file: its rows of every DTensor and, on the first rank, the plain tensors.

    Every rank calls it, with the same names; the directory is made if need be. Raises OSError or SafetensorError if
    the file cannot be written.
    """
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
        os.fsync(file.fileno())  # on this machine: no other can flush what this one wrote to a shared disk


def read_shards(directory: Path, parameters: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors by name, `<parameter>/<key>`, from files of any number of ranks.

    Where the parameter is a DTensor of the same shape the tensor becomes one spread like it, and only its rows are
    read; every other tensor is read whole, onto the CPU. Raises CheckpointError if rows are missing.
    """
    with ExitStack() as files:
        pieces: dict[str, list[_Piece]] = {}
        for path in sorted(directory.glob("*.safetensors")):
            file: Any = files.enter_context(safe_open(path, framework="pt"))
            for name, place in json.loads(file.metadata()["shards"]).items():
                pieces.setdefault(name, []).append(_Piece(file, tuple(place["shape"]), place["first"]))
        return {name: _place(name, found, parameters.get(name.rsplit("/", 1)[0])) for name, found in pieces.items()}


def read_rows(files: Sequence[Path], targets: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors by name from files that hold them whole, as the targets of those names: of the same type of number and,
    where the target is a DTensor, spread like it, of which only this rank's rows are read."""
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
    """Rows [first, last), from the pieces that hold them; with no rows an empty tensor of the right width."""
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
            f"The tensor {name} should have rows {first} to {last}, but {len(rows)} of them are in the files. A file "
            "of a rank is missing: restore it from a copy, or delete the checkpoint to go back to the one before."
        )
    return rows


def _own_rows(tensor: DTensor) -> tuple[int, int]:
    """The rows [first, last) of a tensor that this rank holds: FSDP deals dimension 0 out as `torch.chunk` does.

    Raises CheckpointError if it is spread in another way.
    """
    mesh, rows = tensor.device_mesh, tensor.shape[0]
    each = -(-rows // mesh.size())
    first = min(mesh.get_local_rank() * each, rows)
    last = min(first + each, rows)
    if tuple(tensor.placements) != (Shard(0),) or len(tensor.to_local()) != last - first:
        raise CheckpointError(
            f"A tensor of shape {tuple(tensor.shape)} is spread over the ranks as {tensor.placements}, expected rows "
            "in equal parts (one mesh dimension, Shard(0)): only what shard_module spread can be saved."
        )
    return first, last
