"""Web pages to text, in disposable processes: a page that crashes, exhausts or blocks its process harms nothing
else."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import IO

from evoseek.errors import ConfigError, PageError, ToolError
from evoseek.search.browse.frames import read_frame, write_frame

TYPES = frozenset({"text/html", "application/xhtml+xml", "text/plain"}) | (
    {"application/pdf"} if find_spec("pypdf") else set[str]()
)
"""The types of content that can be read. PDF needs the extra `pdf`."""

_MODULE = "evoseek.search.browse.extract_worker"
_MAX_REPLY = 2**26
_START_S = 60.0
_END_S = 5.0


class Extractor:
    """Keeps `workers` processes, each started when it is first needed and replaced when it is lost.

    A page may take `cpu_s` seconds of processor time, `wall_s` seconds in all and the process `memory_bytes` of address
    space. A process that dies is replaced, and the page is retried once; if it dies again, the page is to blame. The
    processes get an empty environment, so they know no keys, and they end with this process, however it ends.
    """

    def __init__(self, workers: int = 2, *, cpu_s: int = 8, wall_s: float = 20.0, memory_bytes: int = 2**30) -> None:
        if workers < 1 or cpu_s < 1 or wall_s <= 0:
            raise ConfigError(
                f"Pages cannot be read by {workers} processes, in {cpu_s} seconds of processor time and {wall_s} "
                "seconds in all. Expected at least one process, at least one second, and a time above 0."
            )
        self._threads = ThreadPoolExecutor(workers, "extract")
        self._own = threading.local()  # each thread's process
        self._workers: set[_Worker] = set()
        self._cpu_s, self._wall_s, self._memory_bytes = cpu_s, wall_s, memory_bytes
        self._end = weakref.finalize(self, _end_all, self._workers)

    async def page(self, body: bytes, kind: str, charset: str = "") -> tuple[str, str]:
        """Title and text of a page of one of `TYPES`; the text is "" if it shows none. Raises PageError for one that
        cannot be read, ToolError if the processes fail."""
        reply = await self._ask({"kind": kind, "charset": charset}, body)
        return str(reply["title"]), str(reply["text"])

    async def robots(self, body: bytes, agent: str, url: str) -> tuple[bool, float]:
        """Whether a robots.txt allows an agent a URL, and the seconds between requests that it asks for. Raises as
        `page` does."""
        reply = await self._ask({"kind": "robots", "agent": agent, "url": url}, body)
        return reply["allowed"] is True, float(str(reply["delay_s"]))

    def close(self) -> None:
        """End the processes. Pages that are being read fail with ToolError."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._end()

    async def _ask(self, header: Mapping[str, str], body: bytes) -> Mapping[str, object]:
        reply = await asyncio.get_running_loop().run_in_executor(self._threads, self._tried_twice, header, body)
        if problem := reply.get("problem"):
            raise PageError(f"The page cannot be read: {problem}. Choose another page.")
        return reply

    def _tried_twice(self, header: Mapping[str, str], body: bytes) -> Mapping[str, object]:
        status = 0
        for _ in range(2):
            worker = self._worker()
            if (data := worker.ask(header, body, self._wall_s)) is not None:
                return json.loads(data)
            self._own.worker = None
            self._workers.discard(worker)
            status = worker.process.wait()
            self._check_open()
            if worker.is_late.is_set():
                raise ToolError(
                    f"A page was not read within {self._wall_s:g} seconds, though it may not use so much processor "
                    "time: the machine is busy. Run less at once, or raise the extractor's time limit."
                )
            if status == -signal.SIGXCPU:
                return {"problem": f"reading it takes more than {self._cpu_s} seconds of processor time"}
        if status == -signal.SIGKILL:
            raise ToolError(
                "The process that reads pages was killed twice, with one page. If the machine is short of memory, "
                "run fewer workers."
            )
        return {"problem": "reading it takes too much memory, or breaks the reader"}

    def _worker(self) -> _Worker:
        worker: _Worker | None = getattr(self._own, "worker", None)
        if worker is None:
            worker = self._own.worker = _Worker.start(self._cpu_s, self._memory_bytes)
            self._workers.add(worker)
            if not self._end.alive:  # closed while it started: nothing else would end it
                worker.end()
                self._check_open()
        return worker

    def _check_open(self) -> None:
        if not self._end.alive:
            raise ToolError("The page was not read, since what reads pages was closed. Ask before it is closed.")


@dataclass(slots=True, eq=False)
class _Worker:
    process: subprocess.Popen[bytes]
    requests: IO[bytes]
    replies: IO[bytes]
    is_late: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def start(cls, cpu_s: int, memory_bytes: int) -> _Worker:
        """One that has loaded all it needs. Raises ToolError."""
        command = [sys.executable, "-P", "-m", _MODULE, str(cpu_s), str(memory_bytes)]
        environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONDONTWRITEBYTECODE": "1"}
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )
        if process.stdin is None or process.stdout is None:
            raise ToolError("A process was started without pipes.")
        worker = cls(process, process.stdin, process.stdout)
        if worker.reply(_START_S) is None:
            raise ToolError(
                "The process that reads pages does not start. See why: "
                f"{' '.join([sys.executable, *command[1:]])} < /dev/null (it should say nothing but a few bytes)."
            )
        return worker

    def ask(self, header: Mapping[str, str], body: bytes, wall_s: float) -> bytes | None:
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
