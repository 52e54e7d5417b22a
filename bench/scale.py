"""A search engine at the size of the field's corpora: building, disk, memory and speed, and their growth.

    python bench/scale.py FOLDER [--sizes 100000 1000000] [--engine hybrid] [--dtype float16] [--beside] [--keep]

For each size FOLDER gets a corpus of passages of 100 words as JSON lines ({"id", "contents"}), whose words have the
frequencies of natural language (Zipf, 2 million different ones; half of a passage's words are those of its topic).
`evoseek index` and `evoseek serve retrieval` then run as processes of their own, and a table is printed: the seconds of
the build (terms, then all), bytes on disk, the most memory of each process (`own`: what it holds itself; `total`: with
the pages of mapped files, which the system takes back when others need them), the first answer, and queries a second
and their 99th percentile with 1 and 32 clients. With several sizes follow the exponents of growth. `--beside` adds
bm25s and FAISS flat. Queries have eight words: five of a passage and three of the most frequent ones.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np

from evoseek.search.encoders import encoder_of, package_file
from evoseek.search.manifest import Manifest
from evoseek.search.vectors import VectorFiles

TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
WORDS, DIFFERENT, TOPICS, OF_TOPIC = 100, 2_000_000, 50_000, 200
QUERIES, K = 200, 3
BLOCK = 10_000
MIB = 2**20


def vocabulary() -> list[str]:
    """Words by frequency: those of the tokenizer of the encoder `static`, then pairs of them."""
    tokens = json.loads(package_file("wordllama", TOKENIZER, extra="static").read_text())["model"]["vocab"]
    known = [token[1:] for token in sorted(tokens, key=tokens.get) if re.fullmatch("\u2581[a-z]{2,}", token)]
    pairs = (first + second for first, second in itertools.product(known, known[300:]))
    return [*known, *itertools.islice(pairs, DIFFERENT - len(known))]


class Words:
    """Draws ranks of words: Zipf's law, whose exponent grows from 1 to 1.7 at the rank 10,000; and those of topics."""

    def __init__(self) -> None:
        ranks = np.arange(DIFFERENT)
        shares = 1 / (ranks + 2.7) / (1 + (ranks / 10_000) ** 0.7)
        self._sums = np.cumsum(shares / shares.sum())
        in_topic = 1 / (np.arange(OF_TOPIC) + 2.7)
        self._in_topic = np.cumsum(in_topic / in_topic.sum())
        self._topics = np.random.default_rng(7).integers(300, 50_000, (TOPICS, OF_TOPIC))

    def passages(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """(count, WORDS) ranks; each passage has a topic of its own."""
        general = np.searchsorted(self._sums, rng.random((count, WORDS))).clip(max=DIFFERENT - 1)
        places = np.searchsorted(self._in_topic, rng.random((count, WORDS))).clip(max=OF_TOPIC - 1)
        own = self._topics[rng.integers(0, TOPICS, count)[:, None], places]
        return np.where(rng.random((count, WORDS)) < 0.5, own, general)


def make_corpus(path: Path, size: int) -> list[str]:
    """Write the corpus, unless it is there. Returns queries."""
    words, drawn, rng = np.array(vocabulary(), object), Words(), np.random.default_rng(0)
    if not path.exists():
        temporary = path.with_suffix(".tmp")
        with temporary.open("w") as file:
            for start in range(0, size, BLOCK):
                for number, ranks in enumerate(drawn.passages(rng, min(BLOCK, size - start)), start):
                    title, text = words[ranks[ranks > 300][:2]], words[ranks]
                    contents = f'"{" ".join(title).title()}"\n{" ".join(text)}.'
                    file.write(json.dumps({"id": str(number), "contents": contents}) + "\n")
        temporary.replace(path)
    asked = drawn.passages(np.random.default_rng(1), QUERIES)
    return [" ".join([*words[ranks[ranks > 300][:5]], *words[ranks[ranks <= 300][:3]]]) for ranks in asked]


class Watched:
    """A process of evoseek's, with the most memory that it ever had: of its own, and with mapped files."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "evoseek", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.own = self.total = self.now = 0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while self.process.poll() is None:
            try:
                status = Path(f"/proc/{self.process.pid}/status").read_text()
            except OSError:
                return
            found = dict(re.findall(r"^(\w+):\s+(\d+) kB", status, re.MULTILINE))
            self.now = int(found.get("RssAnon", 0)) // 1024
            self.own = max(self.own, self.now)
            self.total = max(self.total, int(found.get("VmHWM", 0)) // 1024)
            time.sleep(0.1)

    def processor_s(self) -> float:
        """Seconds of processor time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def mib(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) // MIB


def build(corpus: Path, index: Path, engine: str, dtype: str) -> dict[str, float]:
    """Build an index; the seconds until the first vector is embedded are those of the terms."""
    start, terms, before = time.perf_counter(), 0.0, sum(os.times()[2:4])
    options = [] if engine == "lexical" else ["--dtype", dtype]
    run = Watched("index", str(corpus), str(index), "--engine", engine, *options)
    with (index.parent / f"{index.name}.log").open("w") as log:
        assert run.process.stdout
        for line in run.process.stdout:
            passed = time.perf_counter() - start
            log.write(f"{passed:8.1f} s  {run.now:6,} MiB  {line}")
            log.flush()
            if "embedded" in line and not terms:
                terms = passed
    if run.process.wait():
        raise SystemExit(f"The build failed: see {index}.log")
    whole = time.perf_counter() - start
    processor = sum(os.times()[2:4]) - before
    return {
        "terms_s": terms or whole,
        "build_s": whole,
        "processor_s": processor,
        "disk_mib": mib(index),
        "own": run.own,
        "total": run.total,
    }


async def ask(url: str, queries: list[str], clients: int) -> tuple[float, float]:
    """Queries a second, and the 99th percentile in milliseconds."""
    taken: list[float] = []
    waiting = iter(queries)

    async def client() -> None:
        async with httpx2.AsyncClient(timeout=600, verify=False) as connection:
            for query in waiting:
                start = time.perf_counter()
                reply = await connection.post(url, json={"queries": [query], "topk": K, "return_scores": True})
                taken.append(time.perf_counter() - start)
                reply.raise_for_status()

    start = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return len(taken) / (time.perf_counter() - start), 1000 * float(np.quantile(taken, 0.99))


def serve(index: Path, queries: list[str]) -> dict[str, float]:
    start = time.perf_counter()
    run = Watched("serve", "retrieval", str(index), "--port", "0")
    try:
        assert run.process.stdout
        url = next(match[0] for line in run.process.stdout if (match := re.search(r"http://\S+", line)))
        asyncio.run(ask(url, queries[:1], 1))
        first = time.perf_counter() - start
        first_processor = run.processor_s()
        asyncio.run(ask(url, queries[1:40], 1))
        before = run.processor_s()
        alone, alone_p99 = asyncio.run(ask(url, queries, 1))
        each = 1000 * (run.processor_s() - before) / len(queries)
        many, many_p99 = asyncio.run(ask(url, queries * 2, 32))
        each_of_many = 1000 * (run.processor_s() - before - each * len(queries) / 1000) / len(queries) / 2
    finally:
        run.process.terminate()
        run.process.wait()
    return {
        "first_s": first,
        "first_processor_s": first_processor,
        "qps_1": alone,
        "processor_ms_1": each,
        "p99_1_ms": alone_p99,
        "qps_32": many,
        "processor_ms_32": each_of_many,
        "p99_32_ms": many_p99,
        "own": run.own,
        "total": run.total,
    }


def as_engine(index: Path, engine: str) -> None:
    """Make this the engine that searches the index unless another one is named."""
    manifest = Manifest.read(index)
    manifest.engine = engine
    manifest.write(index)


def show(size: int, what: str, values: dict[str, float]) -> None:
    texts = (f"{name} {value:,.3g}" if value < 100 else f"{name} {value:,.0f}" for name, value in values.items())
    print(f"{size:>10,}  {what:<22} {'  '.join(texts)}", flush=True)


def contents(corpus: Path) -> Iterator[str]:
    with corpus.open() as file:
        for line in file:
            yield json.loads(line)["contents"]


def beside(corpus: Path, index: Path, queries: list[str], size: int) -> None:
    """bm25s and FAISS flat, in processes of their own, as their memory is measured."""
    for name in ("bm25s", "faiss"):
        command = [sys.executable, __file__, str(corpus.parent), "--only", name, "--sizes", str(size)]
        print(subprocess.run(command, capture_output=True, text=True, check=True).stdout, end="", flush=True)


def only(name: str, corpus: Path, index: Path, queries: list[str], size: int) -> None:
    import resource

    start = time.perf_counter()
    find = {"bm25s": bm25s_find, "faiss": faiss_find}[name](corpus, index)
    built = time.perf_counter() - start
    find(queries[:1])
    first = time.perf_counter()
    for query in queries:
        find([query])
    alone = len(queries) / (time.perf_counter() - first)
    first = time.perf_counter()
    find(queries)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    rates = {"qps_1": alone, "qps_all": len(queries) / (time.perf_counter() - first)}
    show(size, f"{name}, in process", {"build_s": built, **rates, "total": peak})


def bm25s_find(corpus: Path, index: Path) -> Callable[[list[str]], Any]:
    import bm25s

    def tokens(texts: list[str]) -> Any:
        return bm25s.tokenize(texts, stopwords=None, show_progress=False)

    model = bm25s.BM25(k1=1.2, b=0.75)
    model.index(tokens(list(contents(corpus))), show_progress=False)
    return lambda queries: model.retrieve(tokens(queries), k=K, show_progress=False)


def faiss_find(corpus: Path, index: Path) -> Callable[[list[str]], Any]:
    """Of the vectors of the index, so without the time of embedding."""
    import faiss

    manifest = Manifest.read(index)
    record = manifest.vectors_for("dense", index)
    encoder = encoder_of(record.encoder, index)
    faiss.omp_set_num_threads(1)
    flat = faiss.IndexFlatIP(record.encoder.dimension)
    for block in VectorFiles(index / manifest.data, record).blocks():
        flat.add(block.astype(np.float32))
    return lambda queries: flat.search(encoder.queries(queries), K)


def fits(found: dict[int, dict[str, float]]) -> None:
    """The exponent of each number over the sizes, and what the last two make of 21 million passages."""
    sizes = sorted(found)
    for name in found[sizes[0]]:
        values = [found[size].get(name, 0) for size in sizes]
        if min(values) > 0:
            slope = float(np.polyfit(np.log(sizes), np.log(values), 1)[0])
            last = math.log(values[-1] / values[-2]) / math.log(sizes[-1] / sizes[-2])
            far = values[-1] * (21e6 / sizes[-1]) ** last
            print(f"{name:<24} exponent {slope:5.2f}, of the last two {last:5.2f}; at 21 million {far:,.3g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", type=int, nargs="*", default=[100_000, 1_000_000])
    parser.add_argument("--engine", choices=("lexical", "dense", "hybrid"), default="hybrid")
    parser.add_argument("--dtype", choices=("float32", "float16"), default="float16")
    parser.add_argument("--beside", action="store_true")
    parser.add_argument("--keep", action="store_true", help="leave corpora and indexes, and use those that are there")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    found: dict[int, dict[str, float]] = {}
    for size in options.sizes:
        corpus, index = options.folder / f"{size}.jsonl", options.folder / f"{size}.index"
        queries = make_corpus(corpus, size)
        if options.only:
            only(options.only, corpus, index, queries, size)
            continue
        found[size] = {"corpus_mib": corpus.stat().st_size // MIB}
        if not (index / "manifest.json").exists():
            values = build(corpus, index, options.engine, options.dtype)
            show(size, f"build {options.engine}", values)
            found[size] |= {f"build {name}": value for name, value in values.items()}
        for engine in ("lexical",) if options.engine == "lexical" else ("lexical", "dense", "hybrid"):
            as_engine(index, engine)
            values = serve(index, queries)
            show(size, f"serve {engine}", values)
            found[size] |= {f"{engine} {name}": value for name, value in values.items()}
        if options.beside:
            beside(corpus, index, queries, size)
        if not options.keep:
            corpus.unlink()
            shutil.rmtree(index)
    if len(found) > 1:
        fits(found)


if __name__ == "__main__":
    main()
