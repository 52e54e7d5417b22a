"""How things grow with use: a long training, a long record, a large folder, a long self-play.

    python bench/growth.py [--only steps trajectories documents questions]

`steps` trains the tiny policy and takes its memory, open files and seconds a step in ten blocks. `trajectories` makes
the viewer's page of runs of more and more rollouts (those of bench/view.py), `documents` changes 1 % of larger and
larger folders and updates their index, `questions` looks for duplicates among more and more questions, as Dr. Zero does
in every step that writes (the first time, and again). A table is printed for each, with the exponent of growth: the
slope of the line by least squares through the logarithms of sizes and seconds, which is 1 where they are proportional.
Every size runs in a process of its own, whose greatest memory is shown.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from math import log
from multiprocessing import get_context
from pathlib import Path
from statistics import linear_regression, median
from tempfile import TemporaryDirectory
from time import perf_counter

from rich.console import Console

from evoseek.cli.learning_demo import TRAINING_HOPS, demo_options
from evoseek.report.view.html import data_folder, make_page
from evoseek.report.view.source import RunSource
from evoseek.run import Run
from evoseek.search.indexing import IndexPlan, build_index, update_index
from evoseek.text.duplicates import NearDuplicates
from evoseek.world.world import make_world
from view import make_run

QUIET = Console(quiet=True)
BLOCKS = 10
WORDS = [f"{first}{second}{third}" for first in "bdfklmnprs" for second in "aeiou" for third in ("rin", "tal", "mos")]


class Watch:
    """A tracker that takes the time, the resident memory (MiB) and the open files after every step."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, float, int]] = []

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        self.rows.append((perf_counter(), pages * os.sysconf("SC_PAGE_SIZE") / 2**20, len(os.listdir("/proc/self/fd"))))


def train(count: int) -> list[tuple[float, float, int]]:
    with TemporaryDirectory() as folder:
        for part in ("train", "evaluation"):
            make_world(Path(folder) / part, part, 0, 200, TRAINING_HOPS, entities=300)
        small = {"questions.per_step": 2, "rollout.group_size": 4, "run.max_minutes": 600, "evaluation.every": 0}
        settings = demo_options(Path(folder), 0) | small | {"policy.model": "tiny", "run.steps": count}
        watch = Watch()
        Run("search-r1", Path(folder) / "run", settings=settings, trackers=[watch], console=QUIET).train()
        return watch.rows


def view(count: int) -> dict[str, float]:
    with TemporaryDirectory() as folder:
        run, page = make_run(Path(folder) / "run", count), Path(folder) / "view.html"
        seconds = timed(lambda: make_page([RunSource.open(run)], data_folder(page).name).write(page))
        return {"seconds": seconds, "page, MB": page.stat().st_size / 1e6}


def update(count: int) -> dict[str, float]:
    rng = random.Random(0)

    def write(number: int) -> None:
        text = " ".join(rng.choices(WORDS, k=120))
        (documents / f"{number % 100}" / f"{number}.txt").write_text(text, encoding="utf-8")

    with TemporaryDirectory() as folder:
        documents, index = Path(folder) / "documents", Path(folder) / "index"
        for number in range(100):
            (documents / f"{number}").mkdir(parents=True)
        for number in range(count):
            write(number)
        built = timed(lambda: build_index(documents, index, IndexPlan(), console=QUIET))
        for number in range(0, count, 100):
            write(number)
        return {
            "build, s": built,
            "seconds": timed(lambda: update_index(documents, index, device="cpu", console=QUIET)),
        }


def compare(count: int) -> dict[str, float]:
    rng = random.Random(0)
    earlier = [" ".join(rng.choices(WORDS, k=12)) for _ in range(count)]

    def step() -> None:
        seen = NearDuplicates(0.8)
        for text in earlier:
            seen.is_new(text)

    return {"first, s": timed(step), "seconds": timed(step)}


def timed(job: Callable[[], object]) -> float:
    started = perf_counter()
    job()
    return perf_counter() - started


def with_memory(job: Callable[[int], dict[str, float]], count: int) -> dict[str, float]:
    return {**job(count), "most memory, MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def apart(job: Callable[..., object], *given: object) -> object:
    with ProcessPoolExecutor(1, get_context("spawn")) as alone:
        return alone.submit(job, *given).result()


def table(of: str, rows: Mapping[int, Mapping[str, float]]) -> str:
    """A table in Markdown, with the exponent of the seconds."""
    names = list(next(iter(rows.values())))
    lines = [f"| {' | '.join((of, *names))} |", f"|{'---|' * (len(names) + 1)}"]
    lines += [f"| {size:,} | {' | '.join(f'{row[name]:,.3g}' for name in names)} |" for size, row in rows.items()]
    return "\n".join([*lines, f"\nexponent of the seconds: {exponent(rows):.2f}\n"])


def exponent(rows: Mapping[int, Mapping[str, float]]) -> float:
    slope, _ = linear_regression([log(size) for size in rows], [log(row["seconds"]) for row in rows.values()])
    return slope


def of_blocks(rows: Sequence[tuple[float, float, int]]) -> dict[int, dict[str, float]]:
    size = len(rows) // BLOCKS
    found: dict[int, dict[str, float]] = {}
    for end in range(size, len(rows) + 1, size):
        block = rows[end - size : end]
        steps = [after[0] - before[0] for before, after in pairwise(block)]
        found[end] = {"seconds": median(steps), "memory, MiB": block[-1][1], "open files": block[-1][2]}
    return found


PARTS: dict[str, tuple[Callable[[int], dict[str, float]], tuple[int, ...]]] = {
    "trajectories": (view, (1_000, 10_000, 100_000)),
    "documents": (update, (1_000, 5_000, 50_000)),
    "questions": (compare, (1_000, 3_000, 10_000)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=("steps", *PARTS), default=["steps", *PARTS])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--most", type=int, help="leave out larger sizes")
    options = parser.parse_args()
    if options.steps < 2 * BLOCKS:
        parser.error(f"got --steps {options.steps}, expected at least {2 * BLOCKS}: {BLOCKS} blocks of two steps.")
    few = {name for name, (_, sizes) in PARTS.items() if options.most and sizes[1] > options.most}
    if short := sorted(few & {*options.only}):
        parser.error(f"got --most {options.most}, which leaves fewer than two sizes of {', '.join(short)}.")
    if "steps" in options.only:
        print(table("steps", of_blocks(apart(train, options.steps))), flush=True)  # pyright: ignore[reportArgumentType]
    for name, (job, sizes) in PARTS.items():
        if name in options.only:
            kept = [size for size in sizes if size <= (options.most or size)]
            print(table(name, {size: apart(with_memory, job, size) for size in kept}), flush=True)  # pyright: ignore[reportArgumentType]


if __name__ == "__main__":
    main()
