"""The device and free memory of this machine, and how this process uses it."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path

import torch

from evoseek.models.cpu_matmul import has_bfloat16_products

_CGROUP = Path("/sys/fs/cgroup")
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt(3)


@dataclass(frozen=True, slots=True)
class Machine:
    """A device and its free memory in bytes; if the device is not `is_here`, the CPU's free memory.

    `has_bfloat16` says whether it multiplies bfloat16 numbers. `processes` share the training.
    """

    device: str
    free_bytes: int
    is_here: bool = True
    has_bfloat16: bool = True
    processes: int = 1

    @property
    def is_cpu(self) -> bool:
        return self.device == "cpu"


def find_machine(device: str | None = None) -> Machine:
    """Return the machine with this device; by default with the CUDA (or ROCm) device if there is one, else the CPU."""
    found = device or ("cuda" if torch.cuda.is_available() else "cpu")
    processes = int(os.environ.get("WORLD_SIZE", "1"))  # torchrun's, as is LOCAL_RANK
    if found.startswith("cuda") and torch.cuda.is_available():
        own = found if ":" in found else int(os.environ.get("LOCAL_RANK", "0"))
        supported = torch.cuda.is_bf16_supported(including_emulation=False)
        return Machine(found, torch.cuda.mem_get_info(own)[0], has_bfloat16=supported, processes=processes)
    return Machine(found, _free_memory(), found in devices(), has_bfloat16_products(), processes)


def devices() -> list[str]:
    """Return the names of this machine's devices, as torch finds them."""
    kind = torch.accelerator.current_accelerator(check_available=True)
    numbered = (f"{kind}:{number}" for number in range(torch.accelerator.device_count() if kind else 0))
    return ["cpu", *([kind.type, *numbered] if kind else [])]


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def oversubscription(processes: int, device: str) -> str | None:
    """Describe what is wrong with training in this number of processes on a device; None if nothing is."""
    if device != "cpu" or processes <= cores():
        return None
    return f"{processes} processes would train on {cores()} cores, and wait for each other."


def keep_freed_memory() -> None:
    """Let glibc keep freed blocks of up to 32 MiB for the next allocations; without glibc do nothing.

    By default blocks larger than 128 KiB return to the system immediately, and the next activations of this size need
    new pages, which the system must clear: a tenth to a half of the time of a pass on a CPU.
    """
    set_option = getattr(ctypes.CDLL(None) if os.name == "posix" else None, "mallopt", None)
    if set_option is not None:
        set_option(_MMAP_THRESHOLD, 1 << 25)  # the maximum in glibc
        set_option(_TRIM_THRESHOLD, (1 << 31) - 1)


def release_freed_memory() -> None:
    """Return blocks that this process has freed to the system; without glibc do nothing."""
    trim = getattr(ctypes.CDLL(None) if os.name == "posix" else None, "malloc_trim", None)
    if trim is not None:
        trim(0)


def _free_memory() -> int:
    """Return the bytes that processes can still allocate, within the limit of a container."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):  # another system than Linux
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit, used = (int((_CGROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        lines = (_CGROUP / "memory.stat").read_text(encoding="ascii").splitlines()
        cached = sum(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))  # reclaimable
    except (OSError, ValueError, IndexError):  # no limit ("max"), or no such container
        return free
    return min(free, max(0, limit - used + cached))
