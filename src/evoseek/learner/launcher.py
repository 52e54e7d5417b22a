"""Starts the processes that train together on one machine, as torchrun does for several, and ends them together.

torchrun kills processes that have not ended half a minute after Ctrl-C, in the middle of a step; here they finish it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import torch.distributed as dist

_GRACE_S = 20.0  # how long the others may take to end after one has failed: their next collective tells them
_LOOK_S = 0.1
_LAUNCHER = "EVOSEEK_LAUNCHER"  # the process that started this one by `run_together`


def run_together(number: int, words: Sequence[str], *, program: Sequence[str] = ("-m", "evoseek")) -> int:
    """Run `python -m evoseek WORDS` in so many processes that join as ranks. Returns 0 or, if any failed, the status of
    the first that did. `program` is what Python runs instead of evoseek.

    Ctrl-C reaches them as it reaches this process, which waits for them; SIGTERM is passed on to them. If this process
    is killed, they save after their step and end. Each has its
    share of this machine's cores, unless OMP_NUM_THREADS says how many.
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
    """Whether this process was started by `run_together`, and the process that did so has died."""
    return os.environ.get(_LAUNCHER, str(os.getppid())) != str(os.getppid())


def _environment(rank: int, number: int, port: int) -> dict[str, str]:
    """What torchrun tells its processes; the store is this process's."""
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
    """Until all have ended; those that outlive the first failure for too long are killed."""
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
