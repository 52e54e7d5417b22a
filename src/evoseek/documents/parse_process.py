"""Parses in a disposable process: an input that crashes, exhausts or blocks a parser harms nothing else.

The process is `python -m evoseek.documents.parse_process MODULE:FUNCTION CPU_SECONDS MEMORY_BYTES`. A request arrives
on its standard input as two frames, a JSON object and the bytes of an input. The function's answer leaves as one frame,
a JSON object. A frame is a length N in 4 bytes, then N bytes. The process ends when its standard input ends, when an
input exceeds its processor time (by SIGXCPU), or when memory runs out.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import IO, Any

from evoseek.errors import ToolError

_MAX_REQUEST, _MAX_REPLY = 2**31, 2**30
_START_S = 60.0
_END_S = 5.0


class ParseProcess:
    """A process that calls a function of a module. It starts when first needed and is replaced when it dies. It parses
    one input at a time.

    Each input may take `cpu_s` seconds of processor time and `wall_s` seconds in total; the process may take
    `memory_bytes` of address space. If the process dies, the input is retried once; if it dies again, the input is to
    blame. The process has an empty environment, so it has no keys, and it always ends with this process.
    """

    def __init__(self, function: str, *, cpu_s: int, wall_s: float, memory_bytes: int) -> None:
        self._command = [sys.executable, "-P", "-m", __name__, function, str(cpu_s), str(memory_bytes)]
        self._cpu_s, self._wall_s = cpu_s, wall_s
        self._lock = threading.Lock()
        self._running: list[subprocess.Popen[bytes]] = []  # at most one
        self._end = weakref.finalize(self, _kill_all, self._running)
        _OPEN.add(self)

    def parse(self, header: Mapping[str, object], body: bytes) -> Mapping[str, object]:
        """Return the answer. It has `problem` if the input cannot be parsed within the limits, and `is_slow` if it took
        too long. Raises ToolError if the process fails for another reason, or was closed."""
        with self._lock:
            return self._tried_twice(json.dumps(header).encode(), body)

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(process.pid for process in self._running)

    def close(self) -> None:
        """End the process. An input in progress fails with ToolError."""
        self._end()

    def forget(self) -> None:
        """Forget the process in a forked child: it belongs to the parent, and so do the answers in its pipes."""
        self._lock = threading.Lock()
        self._running.clear()

    def _tried_twice(self, header: bytes, body: bytes) -> Mapping[str, object]:
        status = 0
        for _ in range(2):
            process = self._started()
            reply: bytes | None = None
            try:
                reply, is_late = _exchange(process, self._wall_s, header, body)
            finally:
                if reply is None:
                    with suppress(ValueError):  # `close` removed it
                        self._running.remove(process)
            if reply is not None:
                return json.loads(reply)
            status = process.returncode
            self._check_open()
            if is_late:
                raise ToolError(
                    f"An input was not parsed within {self._wall_s:g} seconds, and did not exceed its processor time: "
                    "the machine is busy. Reduce parallelism."
                )
            if status == -signal.SIGXCPU:
                problem = f"reading it takes more than {self._cpu_s} seconds of processor time"
                return {"problem": problem, "is_slow": True}
        if status == -signal.SIGKILL:
            raise ToolError(
                "The parser process was killed twice by one input. If the machine is short of memory, reduce "
                "parallelism."
            )
        return {"problem": "reading it takes too much memory, or breaks the reader"}

    def _started(self) -> subprocess.Popen[bytes]:
        """Start the process and wait until it has loaded everything. Raises ToolError."""
        if not self._running:
            environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONDONTWRITEBYTECODE": "1"}
            pipe = subprocess.PIPE
            process = subprocess.Popen(
                self._command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=environment
            )
            if _exchange(process, _START_S)[0] is None:
                raise ToolError(
                    "The parser process does not start. See why: "
                    f"{' '.join(self._command)} < /dev/null (its output should be a few bytes)."
                )
            self._running.append(process)
            if not self._end.alive:  # closed while it started: nothing else would end it
                _kill_all(self._running)
        self._check_open()
        return self._running[0]

    def _check_open(self) -> None:
        if not self._end.alive:
            raise ToolError("The parser process is already closed. Parse before calling close().")


_OPEN: weakref.WeakSet[ParseProcess] = weakref.WeakSet()


def _forget_all() -> None:
    for process in list(_OPEN):
        process.forget()


os.register_at_fork(after_in_child=_forget_all)


def _exchange(process: subprocess.Popen[bytes], wall_s: float, *frames: bytes) -> tuple[bytes | None, bool]:
    """Send frames to a process; return its next frame, and whether it was killed for taking too long. If no frame comes
    in time, return None: the process is then gone."""
    late = threading.Event()

    def kill() -> None:
        late.set()
        process.kill()

    if process.stdin is None or process.stdout is None:
        raise ToolError("A process was started without pipes.")
    timer = threading.Timer(wall_s, kill)
    timer.start()
    try:
        for frame in frames:
            _write_frame(process.stdin, frame)
        reply = _read_frame(process.stdout, _MAX_REPLY)
    except (OSError, ValueError):  # its pipe is broken, or was closed
        reply = None
    except BaseException:  # Ctrl-C: its answer would be taken for the answer to the next request
        _kill_all([process])
        raise
    finally:
        timer.cancel()
    if reply is None:  # ended by itself, with a status that gives the reason, or else killed
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                pipe.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
        _kill_all([process])
    return reply, late.is_set()


def _kill_all(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()
        process.wait()


def _write_frame(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(len(data).to_bytes(4, "big") + data)
    pipe.flush()


def _read_frame(pipe: IO[bytes], limit: int) -> bytes | None:
    """Read the next frame; None if the other side ends, even within a frame, or announces more than `limit` bytes."""
    size = int.from_bytes(head, "big") if len(head := pipe.read(4)) == 4 else limit + 1
    if size > limit:
        return None
    data = pipe.read(size)
    return data if len(data) == size else None


def _serve(answer: Callable[[Any, bytes], Mapping[str, object]], cpu_s: int, memory: int) -> None:
    """Answer until there are no more requests."""
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # the output of a parser is not an answer
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    _write_frame(replies, b"{}")
    while (header := _read_frame(requests, _MAX_REQUEST)) is not None:
        if (body := _read_frame(requests, _MAX_REQUEST)) is None:
            break
        spent = resource.getrusage(resource.RUSAGE_SELF)
        allowance = int(spent.ru_utime + spent.ru_stime) + 1 + cpu_s
        resource.setrlimit(resource.RLIMIT_CPU, (allowance, resource.RLIM_INFINITY))
        _write_frame(replies, json.dumps(answer(json.loads(header), body)).encode())


if __name__ == "__main__":
    module, _, name = sys.argv[1].partition(":")
    _serve(getattr(import_module(module), name), int(sys.argv[2]), int(sys.argv[3]))
