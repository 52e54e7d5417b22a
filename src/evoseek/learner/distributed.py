"""The processes that train together, and what they tell each other: plain JSON, never a pickle.

A rank is one of the processes that `torchrun --nproc-per-node N -m evoseek train ...` starts. Every rank runs the same
program; a collective (any method below) has to be called by all of them, in the same order, or they wait for ever.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from evoseek.errors import ConfigError

PATIENCE = timedelta(hours=1)  # how long a rank waits for the others, whose rollouts may take far longer than its own

_BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
_NUMBERS = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
_MASTER = ("MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among `size`; it is number `rank` and computes on `device`. All methods are collectives."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """True in the process that writes what is written once."""
        return self.rank == 0

    def gather(self, value: object) -> list[Any]:
        """Every rank's value, in rank order, on every rank. Any JSON, as it is read back: lists for tuples."""
        data = json.dumps(value).encode()
        if self.size == 1:
            return [json.loads(data)]
        lengths = [int(length) for length in self._all_gather(torch.tensor([len(data)]))]
        padded = torch.zeros(max(lengths), dtype=torch.uint8)
        padded[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        rows = zip(self._all_gather(padded), lengths, strict=True)
        return [json.loads(row[:length].numpy().tobytes()) for row, length in rows]

    def _all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        own = tensor.to(self.device)
        received = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(received, own)
        return [other.cpu() for other in received]

    def sum(self, values: Mapping[str, float]) -> dict[str, float]:
        """Sums over the ranks, added up in rank order and so the same to the bit on all. Keys have to agree."""
        everyone: list[dict[str, float]] = self.gather(dict(values))
        return {name: sum(other[name] for other in everyone) for name in values}

    def any(self, flag: bool) -> bool:
        """Whether it is true on any rank."""
        return any(self.gather(bool(flag)))

    def barrier(self) -> None:
        """Return when every rank has come here."""
        self.gather(None)


ALONE = Ranks(0, 1, torch.device("cpu"))


def join_ranks(device: str) -> Ranks:
    """Join the other processes that torchrun has started; alone where it has not, or has started one.

    `device` is a kind: "cpu" (gloo) or "cuda" (NCCL), where each process of a machine takes the GPU of its local rank.
    Raises ConfigError if only a part of torchrun's variables is set, or the machine has too few GPUs.
    """
    found = {name: os.environ[name] for name in (*_NUMBERS, *_MASTER) if os.environ.get(name)}
    if not any(name in found for name in _NUMBERS) or found.get("WORLD_SIZE") == "1":
        return Ranks(0, 1, torch.device(device))
    if any(name not in found for name in (*_NUMBERS, *_MASTER)) or any(not found[n].isdecimal() for n in _NUMBERS):
        raise ConfigError(
            f"Got only a part of what several processes need from the environment: {found or 'nothing'}; expected the "
            f"numbers {', '.join(_NUMBERS)}, and {', '.join(_MASTER)}. Start with `torchrun --nproc-per-node N -m "
            "evoseek train ...`, which sets them all, or unset them to train in one process."
        )
    rank, local_rank, size = (int(found[name]) for name in _NUMBERS)
    own = _own_device(torch.device(device).type, local_rank)
    dist.init_process_group(
        _BACKENDS[own.type], timeout=PATIENCE, device_id=own if own.type == "cuda" else None, rank=rank, world_size=size
    )
    return Ranks(rank, size, own)


def leave_ranks() -> None:
    """End what `join_ranks` began; nothing where this process is alone."""
    if dist.is_initialized():
        dist.destroy_process_group()


def _own_device(kind: str, local_rank: int) -> torch.device:
    if kind not in _BACKENDS:
        raise ConfigError(f"Got the device {kind!r} for several processes, expected cpu or cuda.")
    if kind == "cpu":
        return torch.device("cpu")
    if local_rank >= torch.cuda.device_count():
        raise ConfigError(
            f"Local rank {local_rank} has no GPU of its own: this machine shows {torch.cuda.device_count()}. Start as "
            "many processes on it as it has GPUs (torchrun --nproc-per-node), or train on the device cpu."
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)
