"""The process of a server: how a run starts it, waits for it, and ends it.

Between run and server is a supervisor, which keeps the server alive as long as the run:

    python -m evoseek.samplers.vllm.process LOG COMMAND ARGUMENT...

The run holds the other end of its standard input. When the run ends, however it ends, the input ends too, and the
supervisor ends the server with all its processes. The server's output is appended to the file LOG.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import httpx2

from evoseek.errors import ConfigError
from evoseek.models.settings import EngineSettings

HOST = "127.0.0.1"
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # that vLLM allows
_LOOK_S, _LINES, _REPLY_S = 0.5, 15, 5.0
_GRACE_S, _INPUT_S = 20.0, 0.2  # how long a server may take to end, and how often to check for the end of the input


@dataclass(frozen=True, slots=True)
class Model:
    """The model that a server serves: a directory or name, the longest sequence, the type of number as torch names it,
    and the highest rank of adapters (0: none)."""

    source: str
    max_length: int
    dtype: str
    rank: int


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """How to start a server: its command line, and additions to the environment."""

    words: Sequence[str]
    environment: Mapping[str, str]

    def __str__(self) -> str:
        """Return the command as one would type it."""
        return " ".join([*(f"{name}={value}" for name, value in self.environment.items()), *self.words])


def commands(settings: EngineSettings, model: Model, ports: Sequence[int]) -> dict[str, ServerCommand]:
    """Return the commands for a model's servers by address: one for each group of GPUs, or one that sees all GPUs."""
    return {
        f"http://{HOST}:{port}": _command(settings, model, gpus, port)
        for gpus, port in zip(settings.gpus or [""], ports, strict=True)
    }


def _command(settings: EngineSettings, model: Model, gpus: str, port: int) -> ServerCommand:
    words = [*(settings.program or ("vllm",)), "serve", model.source]
    words += ["--served-model-name", "policy", "--host", HOST, "--port", str(port), "--dtype", model.dtype]
    words += ["--max-model-len", str(model.max_length), "--logprobs-mode", "processed_logprobs"]
    words += ["--generation-config", "vllm", "--tensor-parallel-size", str(gpus.count(",") + 1)]
    if model.rank:
        rank = next((size for size in _RANKS if size >= model.rank), model.rank)
        words += ["--enable-lora", "--max-loras", "2", "--max-lora-rank", str(rank)]
    visible = {"CUDA_VISIBLE_DEVICES": gpus} if gpus else {}
    loading = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}  # endpoints for new weights
    return ServerCommand([*words, *settings.arguments], {**visible, **loading})


def free_ports(number: int) -> list[int]:
    """Return ports of the loopback that are free now."""
    with ExitStack() as held:
        ports: list[int] = []
        for _ in range(number):
            taken = held.enter_context(socket.socket())
            taken.bind((HOST, 0))
            ports.append(taken.getsockname()[1])
        return ports


def launch(commands: Mapping[str, ServerCommand], logs: Path, closing: ExitStack, start_s: float = 900.0) -> None:
    """Start the server of each address, with logs in a directory, and wait until all are up. They end with `closing`,
    or with this process. Raises ConfigError, with the end of the log, if one ends or is not up in `start_s` seconds."""
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


def _started(command: ServerCommand, log: Path, closing: ExitStack) -> subprocess.Popen[bytes]:
    """Start a supervisor with its server. Ctrl-C does not reach it, since the current step still needs the server."""
    process = subprocess.Popen(
        [sys.executable, "-m", "evoseek.samplers.vllm.process", str(log), *command.words],
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


def main() -> int:
    """Supervise the command of the command line, and return its status."""
    log, *command = sys.argv[1:]
    signal.signal(signal.SIGTERM, _leave)
    with open(log, "ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        while process.poll() is None and not _is_over():
            pass
    finally:
        _end(process)
    return process.returncode


def _is_over() -> bool:
    """Wait a moment, and return whether standard input has ended."""
    ready, _, _ = select.select([0], [], [], _INPUT_S)
    return bool(ready) and not os.read(0, 4096)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the server and all its processes, by SIGTERM first."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
