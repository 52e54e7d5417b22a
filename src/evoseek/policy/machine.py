"""The device and free memory of this machine, and how this process uses it.

A product of bfloat16 numbers is summed in float32 in any case. Without a matrix unit (AMX), an x86 processor multiplies
bfloat16 numbers at half the rate of float32 ones or less, so products with many rows run in float32 there: both ways
give the same but for the order of the sum.
"""

from __future__ import annotations

import ctypes
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.functional import linear

FEWEST_ROWS = 64  # of a product in float32; with fewer, converting the weights takes longer than the arithmetic
_CGROUP = Path("/sys/fs/cgroup")
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt(3)


@dataclass(frozen=True, slots=True)
class Machine:
    """A device, and the bytes of its memory that are free; of one that `is_here` denies, those of the CPU's memory."""

    device: str
    free_bytes: int
    is_here: bool = True

    @property
    def is_cpu(self) -> bool:
        """Whether it has no accelerator."""
        return self.device == "cpu"


def find_machine(device: str | None = None) -> Machine:
    """The machine with this device; if none is named, with its CUDA device (ROCm's too), or else the CPU."""
    found = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if found.startswith("cuda") and torch.cuda.is_available():
        own = found if ":" in found else int(os.environ.get("LOCAL_RANK", "0"))  # torchrun's, of several processes
        return Machine(found, torch.cuda.mem_get_info(own)[0])
    return Machine(found, _free_memory(), is_here=found in devices())


def devices() -> list[str]:
    """The names of the devices that this machine has, as torch finds them."""
    kind = torch.accelerator.current_accelerator(check_available=True)
    numbered = (f"{kind}:{number}" for number in range(torch.accelerator.device_count() if kind else 0))
    return ["cpu", *([kind.type, *numbered] if kind else [])]


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def oversubscription(processes: int, device: str) -> str | None:
    """What is wrong with so many processes that train on a device; None if nothing is."""
    if device != "cpu" or processes <= cores():
        return None
    return f"{processes} processes would train on {cores()} cores, and wait for each other."


def keep_freed_memory() -> None:
    """Let glibc keep blocks of up to 32 MiB that this process frees, for its next ones; elsewhere do nothing.

    By default larger blocks than 128 KiB go back to the system at once, and the next activations of the same size are
    new pages again, which the system has to clear: a tenth to a half of the time of a pass on a CPU.
    """
    set_option = getattr(ctypes.CDLL(None) if os.name == "posix" else None, "mallopt", None)
    if set_option is not None:
        set_option(_MMAP_THRESHOLD, 1 << 25)  # the greatest that glibc takes
        set_option(_TRIM_THRESHOLD, (1 << 31) - 1)


def _free_memory() -> int:
    """Bytes that processes can still allocate, within the limit of a container."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):  # another system than Linux
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit, used = (int((_CGROUP / name).read_text()) for name in ("memory.max", "memory.current"))
    except (OSError, ValueError):  # no limit ("max"), or no such container
        return free
    return min(free, max(0, limit - used))


class WideLinear(nn.Linear):
    """A linear layer with bfloat16 weights whose products of `FEWEST_ROWS` rows or more run in float32.

    Inputs, outputs, gradients and what is kept for the backward pass are bfloat16, as in `nn.Linear`.
    """

    def forward(self, input: Tensor) -> Tensor:
        """The product, as of `nn.Linear`."""
        rows = input.numel() // self.in_features
        if rows < FEWEST_ROWS or not input.dtype == self.weight.dtype == torch.bfloat16:
            return super().forward(input)
        result: Tensor = _Product.apply(input, self.weight, self.bias)  # pyright: ignore[reportUnknownMemberType]
        return result


def widen_products(model: nn.Module) -> None:
    """Make the model's bfloat16 linear layers on the CPU `WideLinear`."""
    for module in model.modules():
        if type(module) is nn.Linear and module.weight.dtype == torch.bfloat16 and module.weight.device.type == "cpu":
            module.__class__ = WideLinear


def is_slow_with_bfloat16() -> bool:
    """Whether this is an x86 processor without a matrix unit for bfloat16."""
    return platform.machine() in ("x86_64", "AMD64") and not torch.cpu._is_amx_tile_supported()  # pyright: ignore[reportPrivateUsage]


class _Product(Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(input, weight)
        return linear(input.float(), weight.float(), None if bias is None else bias.float()).to(input.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        input, weight = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        gradient = gradients[0].float()
        rows = gradient.flatten(0, -2)
        return (
            (gradient @ weight.float()).to(input.dtype) if wanted[0] else None,
            (rows.T @ input.float().flatten(0, -2)).to(weight.dtype) if wanted[1] else None,
            rows.sum(0).to(weight.dtype) if wanted[2] else None,
        )
