"""The processes that train together, how to start them on one machine, and their messages: plain JSON, never a pickle.

A rank is one of the processes that `run_together` or `torchrun --nproc-per-node N -m evoseek train ...` starts. Every
rank runs the same program. All must call a collective (any method of `Ranks`) in the same order, or they wait
indefinitely. Half a minute after Ctrl-C torchrun kills processes in the middle of a step; `run_together` lets them
finish the step.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from pydantic import TypeAdapter

from evoseek.errors import ConfigError, EndedElsewhereError
from evoseek.models.load import check_device

ARRIVAL = timedelta(minutes=5)  # how long a rank waits for the others to start
TIMEOUT = timedelta(hours=1)  # how long it waits later; rollouts of other ranks may take far longer

Work = TypeVar("Work")

_BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
_NUMBERS = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
_MASTER = ("MASTER_ADDR", "MASTER_PORT")
_LOST = re.compile(r"gloo|NCCL|[Cc]onnection (closed|reset|refused)|Broken pipe")


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among `size`; it is number `rank` and computes on `device`. All methods are collectives."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes for all."""
        return self.rank == 0

    def gather(self, value: object) -> list[Any]:
        """Return every rank's JSON value, in rank order, on every rank (all-gather). Tuples come back as lists."""
        everyone = self._exchange([value])
        if [] in everyone:
            raise EndedElsewhereError(f"Rank {everyone.index([])} failed. See its own error message first.")
        return [value for (value,) in everyone]

    @contextmanager
    def setting_up(self) -> Generator[None]:
        """Run a block that ends well on all ranks or on none. If it fails on one, the others raise EndedElsewhereError
        in their next collective, at the latest at the block's end. It must not contain passes of a sharded model, which
        communicate without these methods."""
        try:
            yield
        except EndedElsewhereError:
            raise
        except Exception:
            if self.size > 1:
                fails_first()  # before the others notice
                with suppress(RuntimeError):  # another rank may have died
                    self._exchange([])
            raise
        self.barrier()

    def _exchange(self, message: list[object]) -> list[list[Any]]:
        """Return every rank's message: [value], or [] from a rank that failed."""
        data = json.dumps(message).encode()
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

    def share(self, items: Sequence[Work]) -> Sequence[Work]:
        """Return this rank's share of the items, maybe empty. Not a collective."""
        return items[self.rank :: self.size]

    def join(self, own: Sequence[Work], of: type[list[Work]]) -> list[Work]:
        """Gather what every rank made of its `share`, records of one type, in the order of all items."""
        if self.size == 1:
            return list(own)
        shares = gathered(self, list(own), of)
        return [shares[number % self.size][number // self.size] for number in range(sum(map(len, shares)))]

    def deal(self, parts: Sequence[Work]) -> list[tuple[Work, bool]]:
        """Return this rank's parts of the work, in order, each with True. All ranks that share weights must make each
        pass, so a rank with fewer parts repeats its last one, with False: its result does not count."""
        own = [(part, True) for part in parts[self.rank :: self.size]]
        passes = -(-len(parts) // self.size)
        return own + [(part, False) for part in parts[-1:]] * (passes - len(own))

    def sum(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return sums over the ranks, added in rank order, so that all get the same bits. Keys must agree."""
        everyone: list[dict[str, float]] = self.gather(dict(values))
        return {name: sum(other[name] for other in everyone) for name in values}

    def max(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return the largest values on any rank. Keys must agree."""
        everyone: list[dict[str, float]] = self.gather(dict(values))
        return {name: max(other[name] for other in everyone) for name in values}

    def any(self, flag: bool) -> bool:
        """Return whether the flag is true on any rank."""
        return any(self.gather(bool(flag)))

    def barrier(self) -> None:
        """Wait until every rank has reached this point."""
        self.gather(None)


ALONE = Ranks(0, 1, torch.device("cpu"))


def gathered(ranks: Ranks, value: Work, of: type[Work]) -> list[Work]:
    """Gather records, or values that hold them, unchanged; `of` is their type, for TypeAdapter."""
    adapter = TypeAdapter(of)
    return [adapter.validate_python(other) for other in ranks.gather(adapter.dump_python(value, warnings=False))]


def join_ranks(device: str) -> Ranks:
    """Join the processes that torchrun or `run_together` has started; without them this is a single process.

    `device` is "cpu" (gloo) or "cuda" (NCCL: each process takes the GPU of its local rank). Raises PolicyError for a
    device that the machine lacks; ConfigError if variables, GPUs or other processes are missing.
    """
    found = {name: os.environ[name] for name in (*_NUMBERS, *_MASTER) if os.environ.get(name)}
    if not any(name in found for name in _NUMBERS) or found.get("WORLD_SIZE") == "1":
        return Ranks(0, 1, check_device(device))
    if any(name not in found for name in (*_NUMBERS, *_MASTER)) or any(not found[n].isdecimal() for n in _NUMBERS):
        raise ConfigError(
            f"The environment has only {found or 'nothing'} of what several processes need. Expected the "
            f"numbers {', '.join(_NUMBERS)}, and {', '.join(_MASTER)}. Start with `torchrun --nproc-per-node N -m "
            "evoseek train ...`, which sets them all, or unset them to train in one process."
        )
    rank, local_rank, size = (int(found[name]) for name in _NUMBERS)
    own = _own_device(device, local_rank)
    dist.init_process_group(
        _BACKENDS[own.type],
        store=_meet(rank, size),
        timeout=TIMEOUT,
        device_id=own if own.type == "cuda" else None,
        rank=rank,
        world_size=size,
    )
    return Ranks(rank, size, own)


def leave_ranks() -> None:
    """Undo `join_ranks`; does nothing in a single process."""
    if dist.is_initialized():
        dist.destroy_process_group()


@contextmanager
def joined_ranks(device: str) -> Generator[Ranks]:
    """Join for a block; at its end all ranks wait for each other. Raises EndedElsewhereError instead of a network error
    if another process ended unexpectedly."""
    ranks = join_ranks(device)
    try:
        yield ranks
        ranks.barrier()  # leaving early would tear down what other ranks still use
    except RuntimeError as error:
        if ranks.size == 1 or not (isinstance(error, dist.DistError) or _LOST.search(str(error))):
            raise
        raise EndedElsewhereError(
            f"Another process of this run ended, or could not be reached for {TIMEOUT}, so this one cannot continue. "
            "See its last output (the system may have killed it for lack of memory). Run the same command again to "
            "resume from the last checkpoint."
        ) from error
    finally:
        leave_ranks()


@cache
def fails_first() -> bool:
    """Return whether this is the first process of its run to fail, which reports why.

    Others then fail with the same error or for lack of its answer. torchrun ends all processes when one has ended; this
    process ignores its signal from now on, to report its error. Not a collective. Without torchrun, whose store
    outlives the processes, every process counts as the first.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or os.environ.get("WORLD_SIZE", "1") == "1":
        return True
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        return _store().add("evoseek/failures", 1) == 1
    except (RuntimeError, ValueError):  # the store and the other processes are gone
        return True


def _meet(rank: int, size: int) -> dist.Store:
    """Wait until all ranks have started, so that a missing one is reported before `TIMEOUT`."""
    names = [f"evoseek/rank-{number}" for number in range(size)]
    try:
        store = _store()
        store.set(names[rank], "here")
        store.wait(names, ARRIVAL)
    except (RuntimeError, ValueError) as error:
        place = ":".join(os.environ[name] for name in _MASTER)
        raise ConfigError(
            f"This is process {rank} of {size}, but not all of them met at {place} within {ARRIVAL}. Expected "
            f"{size} processes with the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE that can reach each other. Start "
            "them all with `torchrun --nproc-per-node N -m evoseek train ...`, or unset its variables "
            f"({', '.join(_NUMBERS)}) to train in one process."
        ) from error
    store.set_timeout(TIMEOUT)
    return dist.PrefixStore("evoseek/collectives", store)


@cache
def _store() -> dist.Store:
    """Return the store at MASTER_ADDR and MASTER_PORT, kept by torchrun or else by the first rank."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    return next(dist.rendezvous("env://", rank, size, timeout=ARRIVAL))[0]


def _own_device(device: str, local_rank: int) -> torch.device:
    kind = device.partition(":")[0]
    if kind not in _BACKENDS:
        raise ConfigError(f"The device of several processes is {device!r}. Expected cpu or cuda; set policy.device.")
    if kind == "cpu":
        return torch.device("cpu")
    if local_rank >= torch.cuda.device_count():
        raise ConfigError(
            f"Local rank {local_rank} has no GPU: this machine shows {torch.cuda.device_count()}. Start one process "
            "per GPU (torchrun --nproc-per-node), or train on the device cpu."
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


_GRACE_S = 20.0  # time for the others to end after one has failed: their next collective fails
_LOOK_S = 0.1
_LAUNCHER = "EVOSEEK_LAUNCHER"  # the process that started this one by `run_together`


def run_together(number: int, words: Sequence[str], *, program: Sequence[str] = ("-m", "evoseek")) -> int:
    """Run `python -m evoseek WORDS` in `number` processes that join as ranks; return the status of the first that
    failed, or 0. `program` is what Python runs instead of evoseek.

    Ctrl-C reaches the processes directly, SIGTERM is passed on, and this process waits for them. If this process is
    killed, they save after their step and end. They share the cores of this machine, unless OMP_NUM_THREADS is set.
    """
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    processes: list[subprocess.Popen[bytes]] = []
    with _passing_signals(processes):
        try:
            for rank in range(number):
                command = [sys.executable, *program, *words]
                processes.append(subprocess.Popen(command, env=_environment(rank, number, store.port)))
            return _wait(processes)
        finally:
            for process in processes:
                process.kill()
                process.wait()


def is_orphaned() -> bool:
    """Return whether the `run_together` that started this process has died."""
    return os.environ.get(_LAUNCHER, str(os.getppid())) != str(os.getppid())


def _environment(rank: int, number: int, port: int) -> dict[str, str]:
    own = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": number,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": 0,
        _LAUNCHER: os.getpid(),
    }
    threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // number))}
    return threads | os.environ | {name: str(value) for name, value in own.items()}


def _wait(processes: Sequence[subprocess.Popen[bytes]]) -> int:
    """Wait until all have ended; kill those that outlive the first failure for too long."""
    failed, deadline = 0, float("inf")
    while any(process.poll() is None for process in processes):
        if not failed:
            failed = next((process.returncode for process in processes if process.returncode), 0)
            deadline = time.monotonic() + _GRACE_S if failed else deadline
        if time.monotonic() > deadline:
            return failed
        time.sleep(_LOOK_S)
    return failed or next((process.returncode for process in processes if process.returncode), 0)


@contextmanager
def _passing_signals(processes: Sequence[subprocess.Popen[bytes]]) -> Generator[None]:
    def pass_on(number: int, frame: object) -> None:
        for process in processes:
            process.send_signal(number)

    previous = {
        signal.SIGINT: signal.signal(signal.SIGINT, lambda number, frame: None),
        signal.SIGTERM: signal.signal(signal.SIGTERM, pass_on),
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
