"""Parsing in a disposable process: what crashes, exhausts or blocks a parser harms nothing else.

The process is `python -m evoseek.documents.parse_process MODULE:FUNCTION CPU_SECONDS MEMORY_BYTES`. A request comes in
on its standard input as two frames, a JSON object and the bytes of an input; the function's answer to both goes out as
one frame, a JSON object. A frame is a length N in 4 bytes, then N bytes. The process ends with its standard
input, when an input needs more processor time than it may (by SIGXCPU), and when it runs out of memory.
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
    """A process that calls a function of a module, started when it is first needed and replaced when it is lost. One
    input is parsed at a time.

    Each may take `cpu_s` seconds of processor time, `wall_s` seconds in all and the process `memory_bytes` of address
    space. An input with which the process dies is retried once; if it dies again, the input is to blame. The process
    gets an empty environment, so it has no keys, and it ends with this process, however that ends.
    """

    def __init__(self, function: str, *, cpu_s: int, wall_s: float, memory_bytes: int) -> None:
        self._command = [sys.executable, "-P", "-m", __name__, function, str(cpu_s), str(memory_bytes)]
        self._cpu_s, self._wall_s = cpu_s, wall_s
        self._lock = threading.Lock()
        self._running: list[subprocess.Popen[bytes]] = []  # one at most
        self._end = weakref.finalize(self, _kill_all, self._running)
        _OPEN.add(self)

    def parse(self, header: Mapping[str, object], body: bytes) -> Mapping[str, object]:
        """The answer; one with `problem` if the input cannot be parsed within the limits, and with `is_slow` if it
        took too long. Raises ToolError if the process fails for another reason, or was closed."""
        with self._lock:
            return self._tried_twice(json.dumps(header).encode(), body)

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(process.pid for process in self._running)

    def close(self) -> None:
        """End the process. What is being parsed fails with ToolError."""
        self._end()

    def forget(self) -> None:
        """In a forked child: what runs is its parent's, and so are the answers in its pipes."""
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
                    with suppress(ValueError):  # `close` took it out
                        self._running.remove(process)
            if reply is not None:
                return json.loads(reply)
            status = process.returncode
            self._check_open()
            if is_late:
                raise ToolError(
                    f"An input was not parsed within {self._wall_s:g} seconds, though it may not use so much processor "
                    "time: the machine is busy. Run less at once."
                )
            if status == -signal.SIGXCPU:
                problem = f"reading it takes more than {self._cpu_s} seconds of processor time"
                return {"problem": problem, "is_slow": True}
        if status == -signal.SIGKILL:
            raise ToolError(
                "The process that parses was killed twice, with one input. If the machine is short of memory, run "
                "less at once."
            )
        return {"problem": "reading it takes too much memory, or breaks the reader"}

    def _started(self) -> subprocess.Popen[bytes]:
        """The process, after it has loaded all it needs. Raises ToolError."""
        if not self._running:
            environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONDONTWRITEBYTECODE": "1"}
            pipe = subprocess.PIPE
            process = subprocess.Popen(
                self._command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=environment
            )
            if _exchange(process, _START_S)[0] is None:
                raise ToolError(
                    "The process that parses does not start. See why: "
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
    """The next frame from a process, after these were sent; None, and the process is gone, if there is none in time.
    And whether it was killed for taking too long."""
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
    except BaseException:  # Ctrl-C: its answer would be taken for that to the next request
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
    """The next one; None if the other side is gone, in the middle of one too, or says more than `limit` bytes."""
    size = int.from_bytes(head, "big") if len(head := pipe.read(4)) == 4 else limit + 1
    if size > limit:
        return None
    data = pipe.read(size)
    return data if len(data) == size else None


def _serve(answer: Callable[[Any, bytes], Mapping[str, object]], cpu_s: int, memory: int) -> None:
    """Answer until there are no more requests."""
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # the output of a parser is no answer
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
