"""Starts the servers of a run as child processes, which end with it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx2

from evoseek.errors import ConfigError

HOST = "127.0.0.1"
_LOOK_S, _LINES, _REPLY_S = 0.5, 15, 5.0


@dataclass(frozen=True, slots=True)
class Model:
    """What a server is to serve: a directory or name, the longest sequence, the type of number as torch names it, and
    the highest rank of adapters (0: none)."""

    source: str
    max_length: int
    dtype: str
    rank: int


@dataclass(frozen=True, slots=True)
class Command:
    """How a server is started: its command line, and what is added to the environment."""

    words: Sequence[str]
    environment: Mapping[str, str]

    def __str__(self) -> str:
        """As one would type it."""
        return " ".join([*(f"{name}={value}" for name, value in self.environment.items()), *self.words])


def free_ports(number: int) -> list[int]:
    """Ports of the loopback that are free now."""
    with ExitStack() as held:
        ports: list[int] = []
        for _ in range(number):
            taken = held.enter_context(socket.socket())
            taken.bind((HOST, 0))
            ports.append(taken.getsockname()[1])
        return ports


def launch(commands: Mapping[str, Command], logs: Path, closing: ExitStack, start_s: float = 900.0) -> None:
    """Start the server of each address, with a log file in a directory, and wait until all are up. They end with
    `closing`, or when this process does, however it ends.

    Raises ConfigError if there is no such program, and, with the last lines of its log, if a server has ended, or is
    not up in `start_s` seconds.
    """
    for command in commands.values():
        if shutil.which(command.words[0]) is None:
            raise ConfigError(
                f"sampler.urls is empty, so the run starts a server by `{command}`, but there is no program "
                f"{command.words[0]!r}. Set sampler.program to where it is, or sampler.urls to servers that run."
            )
    logs.mkdir(parents=True, exist_ok=True)
    started = {
        url: _started(command, logs / f"server-{number}.log", closing)
        for number, (url, command) in enumerate(commands.items())
    }
    deadline = time.monotonic() + start_s
    for number, (url, process) in enumerate(started.items()):
        while not _is_up(url):
            has_ended, is_late = process.poll() is not None, time.monotonic() > deadline
            if has_ended or is_late:
                why = f"ended with status {process.returncode}" if has_ended else f"was not up in {start_s:g} seconds"
                log = logs / f"server-{number}.log"
                raise ConfigError(
                    f"The server that was started by `{commands[url]}` {why}. Correct sampler.program, "
                    f"sampler.arguments or the memory. The end of {log}:\n{_tail(log)}"
                )
            time.sleep(_LOOK_S)


def _started(command: Command, log: Path, closing: ExitStack) -> subprocess.Popen[bytes]:
    """A supervisor with its server. Ctrl-C does not reach it: a step is finished with the server."""
    process = subprocess.Popen(
        [sys.executable, "-m", "evoseek.samplers.vllm.supervisor", str(log), *command.words],
        stdin=subprocess.PIPE,
        env={**os.environ, **command.environment},
        start_new_session=True,
    )

    def end() -> None:
        if process.stdin is not None:
            process.stdin.close()
        process.wait()

    closing.callback(end)
    return process


def _is_up(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/health", timeout=_REPLY_S, trust_env=False).status_code == 200
    except httpx2.HTTPError:
        return False


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
    return "\n".join(lines[-_LINES:]) or "(it is empty)"
