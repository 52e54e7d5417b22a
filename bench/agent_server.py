"""Load of the agent server: clients that ask at once, half of them by stream, of whom some vanish.

python bench/agent_server.py [CLIENTS [ROUNDS]]

Serves the embedded policy over an index of 2,000 passages of a generated kind, and prints how many requests got an
answer, 429 or an error, seconds to an answer, and the server's memory before and after.
"""

import asyncio
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import httpx2

from evoseek.search.lexical import LexicalIndex
from evoseek.types import Passage

CLIENTS, ROUNDS = map(int, [*sys.argv[1:], *("200", "3")[len(sys.argv) - 1 :]])
VANISHING = 10  # one of so many clients leaves after a tenth of a second


def memory_mb(pid: int) -> float:
    """Resident memory of a process."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) / 1024


async def ask(client: httpx2.AsyncClient, number: int, seconds: list[float]) -> str:
    """One client: what came of it."""
    body = {"model": "evoseek", "messages": [{"role": "user", "content": f"what is Town{number} 's mayor ?"}]}
    began = time.monotonic()
    leaves = number % VANISHING == 0
    try:
        posting = client.post("/v1/chat/completions", json={**body, "stream": bool(number % 2)})
        reply = await asyncio.wait_for(posting, 0.1 if leaves else 600)
    except TimeoutError:
        return "vanished"
    if reply.status_code == 200 and '"error"' not in reply.text:
        seconds.append(time.monotonic() - began)
        return "answered"
    return str(reply.status_code) if reply.status_code != 200 else "error in a stream"


async def load(url: str, pid: int) -> None:
    """The rounds, each with all clients at once."""
    limits = httpx2.Limits(max_connections=CLIENTS)
    async with httpx2.AsyncClient(base_url=url, timeout=600, limits=limits) as client:
        for round in range(ROUNDS):
            seconds: list[float] = []
            before = memory_mb(pid)
            came = Counter(await asyncio.gather(*(ask(client, number, seconds) for number in range(CLIENTS))))
            middle = sorted(seconds)[len(seconds) // 2] if seconds else float("nan")
            print(
                f"round {round + 1}: {dict(came)}, median {middle:.1f} s, longest {max(seconds, default=0):.1f} s, "
                f"memory {before:.0f} -> {memory_mb(pid):.0f} MB",
                flush=True,
            )


def main() -> None:
    """Serve and load."""
    with tempfile.TemporaryDirectory() as folder:
        names = (f"Town{number}" for number in range(2_000))
        passages = (Passage(f"{name}#0", name, name, f"{name} 's mayor is Meri .") for name in names)
        index = LexicalIndex.build(Path(folder) / "index", passages).directory
        command = ("-c", "from evoseek.cli.main import main; main()", "serve", "agent", "tiny", "--index", index)
        with subprocess.Popen([sys.executable, *command, "--port", "0"], stdout=subprocess.PIPE, text=True) as process:
            try:
                lines = iter(process.stdout.readline, "")
                url = next(found[0] for line in lines if (found := re.search(r"http://[\d.]+:\d+", line)))
                asyncio.run(load(url, process.pid))
                print(httpx2.get(f"{url}/metrics").text.partition("# HELP evoseek_answer_seconds")[0])
            finally:
                process.terminate()
                process.wait(60)


if __name__ == "__main__":
    main()
