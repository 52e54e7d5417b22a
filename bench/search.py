"""Speed, memory and recall of the search engines, beside bm25s and FAISS, in one run.

    python bench/search.py [FOLDER] [--sizes 10000 100000] [--vectors 1000000] [--out FILE]

Passages are made of sentences: of FOLDER/corpus.jsonl ({"id", "title", "text"}) if it is given, with the questions of
FOLDER/dev.jsonl as queries, else of a generated world with its questions. `--vectors` adds a size at which only vectors
are searched: drawn around centres, as those of texts lie. Times are processor seconds of one thread, for vectors
the median of queries, each of which goes to all engines in turn. Libraries that are not installed are left out.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from evoseek.search.dense import DenseIndex, HybridIndex
from evoseek.search.encoders import make_encoder, unit
from evoseek.search.lexical import LexicalIndex
from evoseek.search.manifest import EncoderRecord, VectorsRecord
from evoseek.search.vectors import VectorFiles, write_ids
from evoseek.types import Passage
from evoseek.world.world import World

QUERIES, K, BATCH = 200, 3, 64
HNSW = "vectors: faiss HNSW 32, ef 128"
_FIRST = """
import resource, sys, time
start = time.perf_counter()
from pathlib import Path
from evoseek.search.opening import open_built
index = open_built(Path(sys.argv[1]), sys.argv[2])
opened = time.perf_counter()
index.find(sys.argv[3], 3)
mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(f"{time.process_time():.2f} s of processor, {opened - start:.2f} s to open, then "
      f"{time.perf_counter() - opened:.3f} s; {mib:.0f} MiB at most")
"""


def sentences(folder: Path | None) -> tuple[list[str], list[str], list[str]]:
    """Titles, sentences and queries."""
    if folder is None:
        world = World.generate(0, 2_000, "train")
        passages = list(world.passages())
        queries = [question.text for question in world.questions(QUERIES, seed=1)]
    else:
        rows = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
        passages = [Passage(row["id"], row["id"], row["title"], row["text"]) for row in rows]
        queries = [json.loads(line)["question"] for line in (folder / "dev.jsonl").read_text().splitlines()]
    texts = [text for passage in passages for text in re.split(r"(?<=[.!?])\s+", passage.text) if text]
    return [passage.title for passage in passages], texts, queries[:QUERIES]


def passages_of(titles: Sequence[str], texts: Sequence[str], count: int) -> Iterator[Passage]:
    """Passages of a title and one to five sentences each."""
    rng = random.Random(count)
    for number in range(count):
        text = " ".join(rng.choice(texts) for _ in range(rng.randint(1, 5)))
        yield Passage(f"p{number}", f"d{number}", rng.choice(titles), text, 0, len(text))


class Table:
    def __init__(self, out: Path | None) -> None:
        self._out = out

    def row(self, size: int, engine: str, what: str) -> None:
        line = f"{size:>9,}  {engine:<34} {what}"
        print(line, flush=True)
        if self._out:
            with self._out.open("a") as file:
                file.write(line + "\n")


def seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def rate(find: Callable[[Sequence[str]], object], queries: Sequence[str]) -> str:
    """Queries a second, one at a time and all at once."""
    find(queries[:5])
    alone = seconds(lambda: [find([query]) for query in queries])
    return (
        f"{len(queries) / alone:,.0f} q/s one at a time, {len(queries) / seconds(lambda: find(queries)):,.0f} at once"
    )


def mib(folder: Path) -> str:
    return f"{sum(path.stat().st_size for path in folder.rglob('*') if path.is_file()) / 2**20:,.0f} MiB on disk"


def first_answer(folder: Path, engine: str, query: str) -> str:
    command = [sys.executable, "-c", _FIRST, str(folder), engine, query]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def measure_texts(size: int, given: tuple[list[str], list[str], list[str]], table: Table) -> None:
    titles, texts, queries = given
    passages = list(passages_of(titles, texts, size))
    with TemporaryDirectory() as folder:
        built = seconds(lambda: LexicalIndex.build(Path(folder, "lexical"), passages))
        lexical = LexicalIndex.open(Path(folder, "lexical"))
        table.row(size, "lexical", f"built in {built:.1f} s, {mib(lexical.directory)}")
        table.row(size, "lexical", rate(lambda queries: lexical.find_all(queries, K), queries))
        table.row(size, "lexical", first_answer(lexical.directory, "lexical", queries[0]))
        measure_bm25s(size, passages, queries, table)
        encoder, at = make_encoder("static"), Path(folder, "hybrid")
        built = seconds(lambda: DenseIndex.build(at, passages, encoder, engine="hybrid"))
        dense, hybrid = DenseIndex.open(at, encoder), HybridIndex.open(at, encoder)
        table.row(size, "static + lexical", f"built in {built:.1f} s, {mib(at)}")
        table.row(size, "dense (static)", rate(lambda queries: dense.find_all(queries, K), queries))
        table.row(size, "hybrid (static)", rate(lambda queries: hybrid.find_all(queries, K), queries))
        table.row(size, "dense (static)", first_answer(at, "dense", queries[0]))
        manifest = dense.manifest
        measure_vectors(size, at / manifest.data, manifest.vectors_for("dense", at), encoder.queries(queries), table)


def measure_bm25s(size: int, passages: Sequence[Passage], queries: Sequence[str], table: Table) -> None:
    try:
        import bm25s
    except ImportError:
        return
    model = bm25s.BM25(k1=1.2, b=0.75)

    def tokens(texts: Sequence[str]):
        return bm25s.tokenize(list(texts), stopwords=None, show_progress=False)

    built = seconds(lambda: model.index(tokens([p.contents for p in passages]), show_progress=False))
    table.row(size, "bm25s", f"built in {built:.1f} s, in memory")
    table.row(size, "bm25s", rate(lambda q: model.retrieve(tokens(q), k=K, show_progress=False), queries))


Search = Callable[[np.ndarray], list[list[int]]]


def measure_vectors(size: int, data: Path, record: VectorsRecord, queries: np.ndarray, table: Table) -> None:
    """Exact, and FAISS's flat and HNSW indexes: each query goes to one after the other."""
    exact = VectorFiles(data, record)
    engines: dict[str, Search] = {"vectors: exact": lambda q: [rows for rows, _ in exact.nearest(q, K)]}
    engines |= faiss_engines(size, exact, table)
    blocks = [queries[start : start + BATCH] for start in range(0, len(queries) - BATCH + 1, BATCH)] or [queries]
    alone = in_turns(engines, [query[None] for query in queries])
    together = in_turns(engines, blocks)
    truth = [rows for rows, _ in exact.nearest(queries, K)]
    for name, search in engines.items():
        hits = sum(len(set(rows) & set(best)) for rows, best in zip(search(queries), truth, strict=True))
        table.row(
            size,
            name,
            f"{1000 * alone[name]:8.3f} ms a query alone (exact / this: {alone['vectors: exact'] / alone[name]:.1f}), "
            f"{1000 * together[name] / len(blocks[0]):7.3f} of {len(blocks[0])}, "
            f"recall@3 {hits / sum(map(len, truth)):.4f}",
        )


def in_turns(engines: dict[str, Search], batches: Sequence[np.ndarray]) -> dict[str, float]:
    """The median seconds of each engine for one of these batches."""
    taken: dict[str, list[float]] = {name: [] for name in engines}
    for batch in (batches[0], *batches):
        for name, search in engines.items():
            taken[name].append(seconds(partial(search, batch)))
    return {name: statistics.median(times[1:]) for name, times in taken.items()}


def faiss_engines(size: int, exact: VectorFiles, table: Table) -> dict[str, Search]:
    """FAISS's flat index, and its graph unless that would take long to build."""
    try:
        import faiss
    except ImportError:
        return {}
    faiss.omp_set_num_threads(1)
    vectors = np.concatenate([block.astype(np.float32) for block in exact.blocks()])
    flat = faiss.IndexFlatIP(vectors.shape[1])
    flat.add(vectors)
    engines: dict[str, Search] = {"vectors: faiss flat": lambda q: flat.search(q, K)[1].tolist()}
    if size <= 100_000:
        graph = faiss.IndexHNSWFlat(vectors.shape[1], 32, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efSearch = 128
        table.row(size, HNSW, f"built in {seconds(lambda: graph.add(vectors)):.0f} s")
        engines[HNSW] = lambda q: graph.search(q, K)[1].tolist()
    return engines


def measure_drawn(size: int, dimension: int, table: Table) -> None:
    """Vectors around centres; queries are near some of them."""
    rng, encoder = np.random.default_rng(0), {"query_prompt": "", "passage_prompt": "", "pooling": "", "weights": ""}
    record = VectorsRecord(encoder=EncoderRecord(settings={}, dimension=dimension, **encoder), dtype="float32")
    centres = rng.standard_normal((max(size // 100, 1), dimension), np.float32)
    with TemporaryDirectory() as folder:
        data = Path(folder)
        with (data / "vectors.bin").open("wb") as file:
            for start in range(0, size, 50_000):
                count = min(50_000, size - start)
                noise = 0.8 * rng.standard_normal((count, dimension), np.float32)
                vectors = unit(centres[rng.integers(0, len(centres), count)] + noise)
                file.write(vectors.tobytes())
        for _ in write_ids(data, (Passage(f"p{row}", "", "", "") for row in range(size))):
            pass
        table.row(size, f"vectors drawn, {dimension}", mib(data))
        near = vectors[:BATCH]
        queries = unit(near + 0.5 * rng.standard_normal(near.shape, np.float32) / dimension**0.5)
        measure_vectors(size, data, record, queries, table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--sizes", type=int, nargs="*", default=[10_000, 100_000])
    parser.add_argument("--vectors", type=int, nargs="*", default=[])
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    table = Table(options.out)
    given = sentences(options.folder) if options.sizes else None
    for size in options.sizes:
        measure_texts(size, given, table)
    for size in options.vectors:
        measure_drawn(size, options.dimension, table)


if __name__ == "__main__":
    main()
