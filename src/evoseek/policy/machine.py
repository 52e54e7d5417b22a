"""The device and free memory of this machine, and how this process uses it.

A product of bfloat16 numbers is summed in float32 in any case. Without instructions for it (AMX or AVX-512 BF16), an
x86 processor multiplies bfloat16 numbers at half the rate of float32 ones or less, so products with many rows run in
float32 there: both ways give the same but for the order of the sum. A product of float32 numbers runs in oneDNN where
MKL, which torch calls for it, is slow: on AMD's processors with AVX-512 MKL uses half of each vector.
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.functional import linear
from torch.nn.utils import skip_init

FEWEST_ROWS = 64  # of a product in float32; with fewer, converting the weights takes longer than the arithmetic
_FEWEST_ROWS = 8  # of one whose weights are in float32; with fewer, MKL is the quicker library
_TIMED_ROUNDS, _TIMED_ROWS, _TIMED_SLOTS, _WIDEST = 3, 128, 32, 1024  # of the products that are timed
_COMPARED = (torch.float32, torch.bfloat16)
_CGROUP = Path("/sys/fs/cgroup")
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt(3)


@dataclass(frozen=True, slots=True)
class Machine:
    """A device, and the bytes of its memory that are free; of one that `is_here` denies, those of the CPU's memory.

    An accelerator may lack bfloat16 (`has_bfloat16`). `processes` share the training; `clock` gives seconds.
    """

    device: str
    free_bytes: int
    is_here: bool = True
    has_bfloat16: bool = True
    processes: int = 1
    clock: Callable[[], float] = time.process_time

    @property
    def is_cpu(self) -> bool:
        """Whether it has no accelerator."""
        return self.device == "cpu"

    def bfloat16_gain(self, hidden: int, inner: int) -> float:
        """How many times as fast this CPU multiplies by `hidden` x `inner` weights in bfloat16 as in float32.

        It takes about a tenth of a second: the same rows forward, backward, and, as in decoding, a few at a time. Both
        types take turns, and the quickest round of each counts, so that other processes matter little.
        """
        layers = [_timed_layer(min(hidden, _WIDEST), min(inner, _WIDEST), dtype) for dtype in _COMPARED]
        for layer in layers:
            _multiply(layer)  # the first time a library chooses its kernels
        best = [math.inf, math.inf]
        for _ in range(_TIMED_ROUNDS):
            for number, layer in enumerate(layers):
                begun = self.clock()
                _multiply(layer)
                best[number] = min(best[number], self.clock() - begun)
        return best[0] / best[1] if best[1] > 0 else 0.0


def find_machine(device: str | None = None) -> Machine:
    """The machine with this device; if none is named, with its CUDA device (ROCm's too), or else the CPU."""
    found = device or ("cuda" if torch.cuda.is_available() else "cpu")
    processes = int(os.environ.get("WORLD_SIZE", "1"))  # torchrun's, as is LOCAL_RANK
    if found.startswith("cuda") and torch.cuda.is_available():
        own = found if ":" in found else int(os.environ.get("LOCAL_RANK", "0"))
        supported = torch.cuda.is_bf16_supported(including_emulation=False)
        return Machine(found, torch.cuda.mem_get_info(own)[0], has_bfloat16=supported, processes=processes)
    return Machine(found, _free_memory(), is_here=found in devices(), processes=processes)


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


def _timed_layer(hidden: int, inner: int, dtype: torch.dtype) -> nn.Linear:
    """A layer as a model has it here; no random number is drawn, since a run's own draws follow."""
    layer = cast(nn.Linear, skip_init(nn.Linear, hidden, inner, bias=False, dtype=dtype))
    nn.init.constant_(layer.weight, 1 / hidden)
    quicken_products(layer)
    return layer


def _multiply(layer: nn.Linear) -> None:
    rows = torch.ones(_TIMED_ROWS, layer.in_features, dtype=layer.weight.dtype, requires_grad=True)
    product = layer(rows)
    torch.autograd.grad(product, (rows, layer.weight), torch.ones_like(product))
    with torch.no_grad():
        for few in rows.split(_TIMED_SLOTS):
            layer(few)


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


class QuickLinear(nn.Linear):
    """A linear layer of a real model on a CPU, whose products run in float32 by the quicker library.

    With float32 weights from `_FEWEST_ROWS` rows on; with bfloat16 weights from `FEWEST_ROWS` rows on, where inputs,
    outputs, gradients and what is kept for the backward pass are bfloat16, as in `nn.Linear`.
    """

    def forward(self, input: Tensor) -> Tensor:
        """The product, as of `nn.Linear`."""
        fewest = FEWEST_ROWS if self.weight.dtype == torch.bfloat16 else _FEWEST_ROWS
        few = input.numel() < fewest * self.in_features
        if few or input.dtype != self.weight.dtype or torch.is_autocast_enabled("cpu"):
            return super().forward(input)
        result: Tensor = _Product.apply(input, self.weight, self.bias)  # pyright: ignore[reportUnknownMemberType]
        return result


def quicken_products(model: nn.Module) -> None:
    """Make those of the model's linear layers on the CPU `QuickLinear` that this processor multiplies faster so."""
    types = {torch.bfloat16: is_slow_with_bfloat16(), torch.float32: _is_slow_with_float32()}
    for module in model.modules():
        if type(module) is nn.Linear and module.weight.device.type == "cpu" and types.get(module.weight.dtype):
            module.__class__ = QuickLinear


def is_slow_with_bfloat16() -> bool:
    """Whether this is an x86 processor without instructions that multiply bfloat16 numbers."""
    return platform.machine() in ("x86_64", "AMD64") and not (
        torch.cpu._is_amx_tile_supported()  # pyright: ignore[reportPrivateUsage]
        or torch.cpu._is_avx512_bf16_supported()  # pyright: ignore[reportPrivateUsage]
    )


@cache
def _is_slow_with_float32() -> bool:
    """Whether MKL, torch's library for products in float32, leaves half of this processor's vectors unused, and oneDNN,
    which torch has for its compiler, can be called instead."""
    try:
        maker = re.search(r"vendor_id\s*: (\w+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    except OSError:  # another system than Linux
        return False
    wide = torch.cpu._is_avx512_supported()  # pyright: ignore[reportPrivateUsage]
    return wide and maker is not None and maker[1] != "GenuineIntel" and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _float32_product(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The linear layer's product, for float32 numbers."""
    if _is_slow_with_float32():
        return torch.ops.mkldnn._linear_pointwise(input, weight, bias, "none", [], "")
    return linear(input, weight, bias)


def is_quick_bfloat16(values: Tensor) -> bool:
    """Whether these are bfloat16 numbers on a CPU that has instructions to multiply them."""
    return values.dtype == torch.bfloat16 and values.device.type == "cpu" and not is_slow_with_bfloat16()


class _Product(Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(input, weight)
        return _float32_product(input.float(), weight.float(), None if bias is None else bias.float()).to(input.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        input, weight = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        gradient = gradients[0].float()
        rows = gradient.flatten(0, -2)
        return (
            _float32_product(gradient, weight.float().T).to(input.dtype) if wanted[0] else None,
            _float32_product(rows.T, input.float().flatten(0, -2).T).to(weight.dtype) if wanted[1] else None,
            rows.sum(0).to(weight.dtype) if wanted[2] else None,
        )
