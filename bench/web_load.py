"""Thousands of searches at once, over HTTP on loopback, of which one in a hundred meets a slow server: all end, with
bounded memory and few open files.

    python bench/web_load.py            in one process
    python bench/web_load.py --ray      by 4 Ray workers, one of which is killed when half of the searches have ended

They go the way of a training run's: what `[web]` makes of a provider (search/web/calls.py), with its line, rate,
budget, repetitions and circuit breaker; without a cache. The rate and the budget are chosen so as to hold nothing up.

The server is a process of its own in the shape of SearXNG: it answers in 5 to 20 ms, to the share `--slow` of the
queries after `--slow-s` seconds, however often they are asked; above `web.timeout_s` that is a server that hangs.
Printed are how the searches ended, the times that callers saw (who comes first waits least: all come at once), and for
each process of the client how much its memory (RSS) grew, and its peak of open files.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from time import monotonic, process_time
from urllib.parse import parse_qs, urlsplit

from evoseek.protocols import SearchEngine
from evoseek.search.browse.settings import BrowseSettings
from evoseek.search.web.calls import web_calls
from evoseek.search.web.settings import WebSettings

WORKERS, RESULTS = 4, 10
RATE_PER_S = 10_000.0


async def serve(slow: float, slow_s: float) -> None:
    """Answer until stdin is closed, so that the server ends with whoever began it; then tell how often it was asked."""
    asked = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                asked += 1
                query = parse_qs(urlsplit(head.split(b" ", 2)[1].decode()).query)["q"][0]
                is_slow = random.Random(f"slow/{query}").random() < slow
                await asyncio.sleep(slow_s if is_slow else random.uniform(0.005, 0.02))
                results = [{"url": f"http://x/{n}", "title": query, "content": "text " * 40} for n in range(RESULTS)]
                body = json.dumps({"results": results}).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    print(asked, flush=True)


class Watch:
    """Memory and open files of this process and of its Ray workers, looked at every 50 ms."""

    def __init__(self) -> None:
        self.first: dict[int, int] = {}
        self.most: dict[int, int] = {}
        self.files: dict[int, int] = {}

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator[None]:
        async def keep_looking() -> None:
            while True:
                self.look()
                await asyncio.sleep(0.05)

        self.look()
        task = asyncio.create_task(keep_looking())
        try:
            yield
        finally:
            task.cancel()
            self.look()

    def look(self) -> None:
        for pid in (os.getpid(), *ray_workers()):
            try:
                place = Path("/proc", str(pid))
                memory = int((place / "status").read_text().split("VmRSS:")[1].split()[0]) // 1024
                files = len(list((place / "fd").iterdir()))
            except (OSError, IndexError):  # it has ended
                continue
            self.first.setdefault(pid, memory)
            self.most[pid] = max(self.most.get(pid, 0), memory)
            self.files[pid] = max(self.files.get(pid, 0), files)

    def tell(self) -> None:
        for pid, first in self.first.items():
            name = "this process" if pid == os.getpid() else f"worker {pid}"
            grown = f"{self.most[pid]} MB (+{self.most[pid] - first} in the load)"
            print(f"{name}: at most {grown}, {self.files[pid]} open files")


def ray_workers() -> list[int]:
    """The processes of the pool's workers, of this process's own Ray."""
    parents, workers = dict[int, int](), list[int]()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(place.name)] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            if (place / "cmdline").read_bytes().startswith(b"ray::_Worker"):
                workers.append(int(place.name))
        except OSError:  # it has ended
            continue
    return sorted(worker for worker in workers if is_below(worker, parents))


def is_below(pid: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != os.getpid():
        pid = parents[pid]
    return pid == os.getpid()


async def load(engine: SearchEngine, count: int, *, kill: bool) -> None:
    """All searches at once; with `kill` a worker is killed when half of them have ended."""
    watch, ended, took = Watch(), Counter[str](), list[float]()
    killed = 0

    async def search(number: int) -> None:
        nonlocal killed
        begun = monotonic()
        try:
            (found,) = await engine.search([f"query {number}"], RESULTS)
            is_right = [passage.title for passage in found] == [f"query {number}"] * RESULTS
            ended["its results" if is_right else "wrong results"] += 1
        except Exception as error:
            ended[f"{type(error).__name__}: {re.sub('[0-9.]+', 'N', str(error))}"] += 1
        took.append(monotonic() - begun)
        if kill and not killed and len(took) >= count / 2:
            os.kill(killed := ray_workers()[0], signal.SIGKILL)

    begun, worked = monotonic(), process_time()
    async with watch.watching():
        await asyncio.gather(*(search(number) for number in range(count)))
    seconds = monotonic() - begun
    print(f"{len(took)} of {count} searches ended in {seconds:.2f} s: {count / seconds:.0f}/s", end="")
    print(f" ({process_time() - worked:.1f} s of this process's processor time)")
    for how, number in ended.most_common():
        print(f"  {number} with {how}")
    print(
        f"seconds of a caller: p50 {quantile(took, 0.5):.2f}, p99 {quantile(took, 0.99):.2f}, longest {max(took):.2f}"
    )
    if killed:
        print(f"killed: worker {killed}")
    watch.tell()


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--requests", type=int, default=4096)
    parser.add_argument("--concurrency", type=int, default=64, help="web.concurrency: of each process")
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
        run(f"http://127.0.0.1:{server.stdout.readline().strip()}/search", given)
        print(f"requests that came to the server: {server.communicate()[0].strip()}")


def run(url: str, given: argparse.Namespace) -> None:
    workers = WORKERS if given.ray else 0
    usual = WebSettings()
    web = WebSettings(
        provider="searxng",
        url=url,
        rate_per_s=RATE_PER_S,
        concurrency=given.concurrency,
        budget=given.requests * usual.attempts * max(workers, 1),  # each worker has a share of it
        ray_workers=workers,
    )
    with ExitStack() as closing:
        engine, _ = web_calls(web, BrowseSettings(), closing.callback)
        asyncio.run(load(engine, given.requests, kill=given.ray))


if __name__ == "__main__":
    main()
