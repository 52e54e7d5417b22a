"""Web pages to text, in disposable processes: a page can crash, exhaust or block only its own process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from queue import LifoQueue

from evoseek.documents.parse_process import ParseProcess
from evoseek.errors import PageError

TYPES = frozenset({"text/html", "application/xhtml+xml", "text/plain"}) | (
    {"application/pdf"} if find_spec("pypdf") else set[str]()
)
"""The content types that can be read. PDF needs the extra `pdf`."""

_READER = "evoseek.web.extract_worker:answer"


class Extractor:
    """A reader of pages in up to `workers` processes, each with the limits of a `ParseProcess`."""

    def __init__(self, workers: int = 2, *, cpu_s: int = 8, wall_s: float = 20.0, memory_bytes: int = 2**30) -> None:
        self._threads = ThreadPoolExecutor(workers, "extract")
        self._processes = [
            ParseProcess(_READER, cpu_s=cpu_s, wall_s=wall_s, memory_bytes=memory_bytes) for _ in range(workers)
        ]
        self._idle: LifoQueue[ParseProcess] = LifoQueue()  # last used first, so that no more start than needed
        for process in self._processes:
            self._idle.put(process)

    async def page(self, body: bytes, kind: str, charset: str = "") -> tuple[str, str]:
        """Return title and text ("" if it shows none) of a page of one of `TYPES`. Raises PageError for an unreadable
        page, ToolError if the processes fail."""
        reply = await self._ask({"kind": kind, "charset": charset}, body)
        return str(reply["title"]), str(reply["text"])

    async def robots(self, body: bytes, agent: str, url: str) -> tuple[bool, float]:
        """Return whether a robots.txt allows an agent a URL, and its requested seconds between requests. Raises as
        `page`."""
        reply = await self._ask({"kind": "robots", "agent": agent, "url": url}, body)
        return reply["allowed"] is True, float(str(reply["delay_s"]))

    def close(self) -> None:
        """End the processes. Pages in progress fail with ToolError."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process in self._processes:
            process.close()

    async def _ask(self, header: Mapping[str, str], body: bytes) -> Mapping[str, object]:
        reply = await asyncio.get_running_loop().run_in_executor(self._threads, self._in_process, header, body)
        if problem := reply.get("problem"):
            raise PageError(f"The page cannot be read: {problem}. Choose another page.")
        return reply

    def _in_process(self, header: Mapping[str, str], body: bytes) -> Mapping[str, object]:
        process = self._idle.get()
        try:
            return process.parse(header, body)
        finally:
            self._idle.put(process)
