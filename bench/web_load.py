"""Thousands of searches at once, over HTTP on loopback, of which one in a hundred meets a slow server: all end, with
bounded memory and few open files.

    python bench/web_load.py

They go the way of a training run's: what `[web]` makes of a provider (web/web.py), with its line, rate,
budget, repetitions and circuit breaker; without a cache. The rate and the budget are chosen so as to hold nothing up.

The server is a process of its own in the shape of SearXNG: it answers in 5 to 20 ms, to the share `--slow` of the
queries after `--slow-s` seconds, however often they are asked; above the four seconds of an
attempt that is a server that hangs. Printed are how the searches ended, the times that callers saw (the first wait
least: all come at once), how much the memory (RSS) of this process grew, and its peak of open files.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from time import monotonic, process_time
from urllib.parse import parse_qs, urlsplit

from evoseek.protocols import SearchEngine
from evoseek.search.settings import SearchSettings
from evoseek.web.settings import WebSettings
from evoseek.web.web import make_web_engine

RESULTS = 10
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
    """Memory and open files of this process, looked at every 50 ms."""

    def __init__(self) -> None:
        self.first = self.most = self.files = 0

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
        memory = int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) // 1024
        self.first, self.most = self.first or memory, max(self.most, memory)
        self.files = max(self.files, len(list(Path("/proc/self/fd").iterdir())))

    def tell(self) -> None:
        print(f"at most {self.most} MB (+{self.most - self.first} in the load), {self.files} open files")


async def load(engine: SearchEngine, count: int) -> None:
    """All searches at once."""
    watch, ended, took = Watch(), Counter[str](), list[float]()

    async def search(number: int) -> None:
        begun = monotonic()
        try:
            (found,) = await engine.search([f"query {number}"], RESULTS)
            is_right = [passage.title for passage in found] == [f"query {number}"] * RESULTS
            ended["its results" if is_right else "wrong results"] += 1
        except Exception as error:
            ended[f"{type(error).__name__}: {re.sub('[0-9.]+', 'N', str(error))}"] += 1
        took.append(monotonic() - begun)

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
    watch.tell()


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--requests", type=int, default=4096)
    parser.add_argument("--concurrency", type=int, default=64, help="web.concurrency")
    parser.add_argument("--slow", type=float, default=0.01)
    parser.add_argument("--slow-s", type=float, default=2.0)
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
    usual = SearchSettings()
    web = WebSettings(
        provider="searxng",
        url=url,
        rate_per_s=RATE_PER_S,
        concurrency=given.concurrency,
        budget=given.requests * usual.attempts,
    )
    with ExitStack() as closing:
        engine = make_web_engine(web, usual, closing)
        asyncio.run(load(engine, given.requests))


if __name__ == "__main__":
    main()
