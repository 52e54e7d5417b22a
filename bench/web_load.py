"""Thousands of searches at once, over HTTP on loopback, of which one in a hundred meets a slow server: all are
answered, with bounded memory and few open files.

    python bench/web_load.py            by one process (search/web/pool.py)
    python bench/web_load.py --ray      by 4 Ray workers, one of which is killed in the middle (search/web/ray_pool.py)

The server is a process of its own: it answers in 5 to 20 ms, to the share `--slow` of the queries after `--slow-s`
seconds. Printed are the throughput, the times that the callers saw (who comes first waits least: all come at once), the
times of the requests alone, and for each process of the client its peak of memory (RSS) and of open files.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic, perf_counter
from urllib.parse import parse_qs, urlsplit

import httpx2

from evoseek.errors import ToolError
from evoseek.protocols import SearchEngine
from evoseek.search.web.pool import CallPool, PooledEngine
from evoseek.search.web.ray_pool import RayPool
from evoseek.types import Passage

WORKERS = 4
DEADLINE_S = 60.0


class HTTPEngine:
    """A `SearchEngine` over one pool of connections. A passage's text tells who asked, and how long it took."""

    is_local = False

    def __init__(self, url: str, connections: int) -> None:
        self._url = url
        limits = httpx2.Limits(max_connections=connections, max_keepalive_connections=connections)
        self._client = httpx2.AsyncClient(limits=limits, timeout=DEADLINE_S, trust_env=False)

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        begun = perf_counter()
        try:
            response = await self._client.get(self._url, params={"q": queries[0]})
            results = response.raise_for_status().json()["results"]
        except httpx2.HTTPError as error:
            raise ToolError(f"{type(error).__name__}: {error}") from error
        told = json.dumps([os.getpid(), perf_counter() - begun])
        return [[Passage(found["url"], found["url"], found["title"], told) for found in results[:k]]]


def make_engine(url: str, connections: int) -> HTTPEngine:
    """What a Ray worker makes."""
    return HTTPEngine(url, connections)


async def serve(slow: float, slow_s: float) -> None:
    """Answer until stdin is closed, so that the server ends with whoever began it."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                query = parse_qs(urlsplit(head.split(b" ", 2)[1].decode()).query)["q"][0]
                rng = random.Random(f"slow/{query}")
                await asyncio.sleep(slow_s if rng.random() < slow else rng.uniform(0.005, 0.02))
                results = [{"url": f"http://x/{n}", "title": query, "content": "text " * 40} for n in range(10)]
                body = json.dumps({"results": results}).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


class Watch:
    """Peaks of open files of processes, looked at every 20 ms, and of their memory, as the kernel counts it."""

    def __init__(self) -> None:
        self.pids = {os.getpid()}
        self.files: dict[int, int] = {}
        self.memory: dict[int, int] = {}

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator[None]:
        async def keep_looking() -> None:
            while True:
                self.look()
                await asyncio.sleep(0.02)

        task = asyncio.create_task(keep_looking())
        try:
            yield
        finally:
            task.cancel()

    def look(self) -> None:
        for pid in self.pids:
            try:
                place = Path("/proc", str(pid))
                status = (place / "status").read_text()
                self.memory[pid] = int(status.split("VmHWM:")[1].split()[0]) // 1024
                self.files[pid] = max(self.files.get(pid, 0), len(list((place / "fd").iterdir())))
            except (OSError, IndexError):  # it has ended
                continue


async def load(engine: SearchEngine, count: int, watch: Watch, *, kill: bool) -> None:
    """All requests at once; with `kill` the first process that answered is killed when 40 % are done."""
    seen: list[tuple[float, int, float]] = []
    killed = 0

    async def call(number: int) -> None:
        nonlocal killed
        begun = monotonic()
        passage = (await engine.search([f"query {number}"], 1))[0][0]
        pid, took = json.loads(passage.text)
        seen.append((monotonic() - begun, pid, took))
        watch.pids.add(pid)
        if kill and not killed and len(seen) >= 0.4 * count:
            os.kill(killed := seen[0][1], signal.SIGKILL)

    before = watch.memory.copy()
    begun = monotonic()
    async with watch.watching():
        results = await asyncio.gather(*(call(number) for number in range(count)), return_exceptions=True)
    seconds = monotonic() - begun
    failed = [result for result in results if isinstance(result, BaseException)]
    print(f"{count} requests: {len(seen)} answered, {len(failed)} failed, in {seconds:.2f} s: {count / seconds:.0f}/s")
    for error in failed[:3]:
        print(f"  {type(error).__name__}: {error}")
    for name, values in (("a caller", [one[0] for one in seen]), ("a request", [one[2] for one in seen])):
        print(f"seconds of {name}: p50 {quantile(values, 0.5):.3f}, p99 {quantile(values, 0.99):.3f}", end="")
        print(f", longest {max(values):.3f}")
    if killed:
        print(f"killed: process {killed}, which had answered {sum(pid == killed for _, pid, _ in seen)}")
    for pid in sorted(watch.pids):
        name = "this process" if pid == os.getpid() else f"worker {pid}"
        grown = f" (+{watch.memory[pid] - before[pid]} for the load)" if pid in before else ""
        print(f"{name}: at most {watch.memory.get(pid, 0)} MB{grown} and {watch.files.get(pid, 0)} open files")


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--requests", type=int, default=4096)
    parser.add_argument("--concurrency", type=int, default=256)
    parser.add_argument("--slow", type=float, default=0.01)
    parser.add_argument("--slow-s", type=float, default=2.0)
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        asyncio.run(serve(given.slow, given.slow_s))
        return
    command = [sys.executable, __file__, "--serve", "--slow", str(given.slow), "--slow-s", str(given.slow_s)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}/search"
        try:
            run(url, given)
        finally:
            server.terminate()


def run(url: str, given: argparse.Namespace) -> None:
    watch, limits = Watch(), {"waiting": given.concurrency, "deadline_s": DEADLINE_S}
    if not given.ray:
        pool = CallPool(concurrency=given.concurrency, **limits)
        watch.look()
        asyncio.run(load(PooledEngine(HTTPEngine(url, given.concurrency), pool), given.requests, watch, kill=False))
        return
    here, path = str(Path(__file__).parent), os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([here, *([path] if path else [])])
    each = given.concurrency // WORKERS
    spec = {"url": url, "connections": each}
    engine = RayPool("web_load:make_engine", spec, workers=WORKERS, in_flight=each, **limits)
    watch.look()
    try:
        asyncio.run(load(engine, given.requests, watch, kill=True))
    finally:
        engine.close()


if __name__ == "__main__":
    main()
