"""Parsing in a disposable process: what crashes, exhausts or blocks a parser harms nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO

from evoseek.corpus.frames import read_frame, write_frame
from evoseek.errors import ToolError

_MAX_REPLY = 2**30
_START_S = 60.0
_END_S = 5.0


class ParseProcess:
    """A process that runs a module (see `evoseek.corpus.parse_worker`), started when it is first needed and replaced
    when it is lost. One input is parsed at a time.

    Each may take `cpu_s` seconds of processor time, `wall_s` seconds in all and the process `memory_bytes` of address
    space. An input with which the process dies is retried once; if it dies again, the input is to blame. The process
    gets an empty environment, so it knows no keys, and it ends with this process, however that ends.
    """

    def __init__(self, module: str, *, cpu_s: int, wall_s: float, memory_bytes: int) -> None:
        self._module, self._cpu_s, self._wall_s, self._memory_bytes = module, cpu_s, wall_s, memory_bytes
        self._lock = threading.Lock()
        self._workers: set[_Worker] = set()  # one at most
        self._end = weakref.finalize(self, _end_all, self._workers)

    def ask(self, header: Mapping[str, object], body: bytes) -> Mapping[str, object]:
        """The answer; one with `problem` if the input cannot be parsed within the limits, and with `is_slow` if the
        limit is that of time. Raises ToolError if the process fails for another reason, or was closed."""
        with self._lock:
            return self._tried_twice(header, body)

    @property
    def pids(self) -> tuple[int, ...]:
        """The process, if it runs."""
        return tuple(worker.process.pid for worker in self._workers)

    def close(self) -> None:
        """End the process. What is being parsed fails with ToolError."""
        self._end()

    def _tried_twice(self, header: Mapping[str, object], body: bytes) -> Mapping[str, object]:
        status = 0
        for _ in range(2):
            worker = self._worker()
            if (data := worker.ask(header, body, self._wall_s)) is not None:
                return json.loads(data)
            self._workers.discard(worker)
            status = worker.process.wait()
            self._check_open()
            if worker.is_late.is_set():
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

    def _worker(self) -> _Worker:
        if not self._workers:
            worker = _Worker.start(self._module, self._cpu_s, self._memory_bytes)
            self._workers.add(worker)
            if not self._end.alive:  # closed while it started: nothing else would end it
                worker.end()
        self._check_open()
        return next(iter(self._workers))

    def _check_open(self) -> None:
        if not self._end.alive:
            raise ToolError("An input was not parsed, since what parses was closed. Ask before it is closed.")


@dataclass(slots=True, eq=False)
class _Worker:
    process: subprocess.Popen[bytes]
    requests: IO[bytes]
    replies: IO[bytes]
    is_late: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def start(cls, module: str, cpu_s: int, memory_bytes: int) -> _Worker:
        """One that has loaded all it needs. Raises ToolError."""
        command = [sys.executable, "-P", "-m", module, str(cpu_s), str(memory_bytes)]
        environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONDONTWRITEBYTECODE": "1"}
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )
        if process.stdin is None or process.stdout is None:
            raise ToolError("A process was started without pipes.")
        worker = cls(process, process.stdin, process.stdout)
        if worker.reply(_START_S) is None:
            raise ToolError(
                "The process that parses does not start. See why: "
                f"{' '.join([sys.executable, *command[1:]])} < /dev/null (it should say nothing but a few bytes)."
            )
        return worker

    def ask(self, header: Mapping[str, object], body: bytes, wall_s: float) -> bytes | None:
        """The answer; None, and the process is gone, if there is none in time."""
        return self.reply(wall_s, json.dumps(header).encode(), body)

    def reply(self, wall_s: float, *frames: bytes) -> bytes | None:
        """The next frame, after these were sent."""
        timer = threading.Timer(wall_s, self._late)
        timer.start()
        try:
            for frame in frames:
                write_frame(self.requests, frame)
            data = read_frame(self.replies, _MAX_REPLY)
        except (OSError, ValueError):  # its pipe is broken, or was closed
            data = None
        finally:
            timer.cancel()
        if data is None:
            self.end()
        return data

    def end(self) -> None:
        """Kill it, unless it dies without that, with a status that tells why."""
        for pipe in (self.requests, self.replies):
            with suppress(OSError):
                pipe.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_END_S)
        self.process.kill()
        self.process.wait()

    def _late(self) -> None:
        self.is_late.set()
        self.process.kill()


def _end_all(workers: set[_Worker]) -> None:
    for worker in list(workers):
        worker.process.kill()
        worker.process.wait()
