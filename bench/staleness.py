"""Rollouts ahead of training (rollout.max_staleness): what they save, and what they cost in learning.

    python bench/staleness.py model                                        # a simulated node of 8 GPUs, in seconds
    python bench/staleness.py speed --latency 0.5                          # real steps with a slow search engine
    python bench/staleness.py learn --directory runs/staleness --seeds 0 1 2

`model` simulates events: turns share a GPU's decoding, tools take their time, a step trains once all of its rollouts
are there, and rollouts of the next n steps go on meanwhile. Its numbers are assumptions about a model of 3 B
parameters, and are printed; what it shows is how step time depends on n, not how long a step takes on your machine.

`speed` trains the tiny policy with an engine whose searches take a random time around the latency. The arms take turns,
step counts and questions are the same, and each ratio is of medians within this run. The first steps are left out: with
n > 0 the first n + 1 steps begin together.

`learn` is the demo's task (generated worlds, held-out names) with n = 0, 1, 2: held-out exact match before and after
the same number of steps.
"""

import argparse
import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from evoseek.cli.learning_demo import EVALUATION_HOPS, TRAINING_HOPS, TRAINING_QUESTIONS, demo_options
from evoseek.run import Run
from evoseek.search.lexical import LexicalIndex
from evoseek.storage.metrics import read_metrics
from evoseek.world.world import make_world


@dataclass(frozen=True)
class Node:
    """A node of GPUs and its work. Seconds; a turn's tokens and a tool's seconds are lognormal around their means."""

    samplers: int  # GPUs that sample
    learners: int  # GPUs that train; 0: the samplers do, after sampling
    staleness: int
    rollouts: int = 512  # of a step
    turns: tuple[int, int] = (2, 5)
    tokens: float = 150.0  # of a turn
    tool_s: float = 1.0
    spread: float = 0.8  # sigma of both logarithms
    slots: int = 128  # turns that a GPU decodes at once
    token_s: float = 0.012  # of a pass with one turn
    token_s_each: float = 0.0001  # for each further turn in it
    train_s: float = 46.0  # of a step on one GPU
    publish_s: float = 1.0  # to hand over new weights


@dataclass
class Gpu:
    """Turns that are decoded together: each is at the same token, counted from when it began."""

    node: Node
    tokens: float = 0.0  # decoded so far, by each turn that is there
    time: float = 0.0
    turns: list[tuple[float, int, int]] = field(default_factory=list)  # (token at which it ends, step, rollout)
    waiting: deque[tuple[float, int, int]] = field(default_factory=deque)
    busy: float = 0.0

    def advance(self, time: float) -> None:
        if self.turns:
            self.tokens += (time - self.time) / self._pass()
            self.busy += time - self.time
        self.time = time

    def next_end(self) -> float:
        return self.time + max(0.0, self.turns[0][0] - self.tokens) * self._pass() if self.turns else float("inf")

    def begin(self, now: float, tokens: float, step: int, rollout: int) -> None:
        self.advance(now)
        if len(self.turns) < self.node.slots:
            heapq.heappush(self.turns, (self.tokens + tokens, step, rollout))
        else:
            self.waiting.append((tokens, step, rollout))

    def end(self, now: float) -> tuple[int, int]:
        self.advance(now)
        _, step, rollout = heapq.heappop(self.turns)
        if self.waiting:
            self.begin(now, *self.waiting.popleft())
        return step, rollout

    def _pass(self) -> float:
        return self.node.token_s + self.node.token_s_each * (len(self.turns) - 1)


@dataclass
class Simulation:
    """The events of a node: ends of turns, of tools and of updates."""

    node: Node
    steps: int
    now: float = 0.0
    trained: int = 0
    begun: int = 0
    training: bool = False
    events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    left: dict[int, int] = field(default_factory=dict)  # rollouts of a step that have not ended
    versions: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    finished: list[float] = field(default_factory=list)
    staleness: list[int] = field(default_factory=list)
    gpus: list[Gpu] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=count)

    def run(self) -> "Simulation":
        self.gpus = [Gpu(self.node) for _ in range(self.node.samplers)]
        self._begin()
        while self.trained < self.steps:
            gpu = min(self.gpus, key=Gpu.next_end)
            turn_ends = gpu.next_end()
            if self.events and self.events[0][0] <= turn_ends:
                self.now, _, call = heapq.heappop(self.events)
                call()
            else:
                self.now = turn_ends
                self._turn_ended(*gpu.end(self.now))
        return self

    def _begin(self) -> None:
        """The rollouts that may begin with the weights there are."""
        while self.begun < self.trained + 1 + self.node.staleness:
            self.begun += 1
            self.left[self.begun] = self.node.rollouts
            for rollout in range(self.node.rollouts):
                self._turn(self.begun, rollout, 0)

    def _turn(self, step: int, rollout: int, turn: int) -> None:
        key = step, rollout
        self.versions.setdefault(key, []).append(self.trained)
        tokens = self._drawn(self.node.tokens, "tokens", *key, turn)
        self.gpus[rollout % len(self.gpus)].begin(self.now, tokens, *key)

    def _turn_ended(self, step: int, rollout: int) -> None:
        key, turn = (step, rollout), len(self.versions[step, rollout])
        if turn < random.Random(f"turns/{key}").randint(*self.node.turns):
            self._after(self._drawn(self.node.tool_s, "tool", *key, turn), partial(self._turn, *key, turn))
            return
        self.left[step] -= 1
        self._train()

    def _train(self) -> None:
        step = self.trained + 1
        if self.training or self.left.get(step) != 0:
            return
        self.training = True
        self.staleness += [
            self.trained - version for rollout in range(self.node.rollouts) for version in self.versions[step, rollout]
        ]
        gpus = self.node.learners or self.node.samplers
        self._after(self.node.train_s / gpus + self.node.publish_s, self._updated)

    def _updated(self) -> None:
        self.trained, self.training = self.trained + 1, False
        self.finished.append(self.now)
        self._begin()
        self._train()

    def _after(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.now + seconds, next(self.numbers), call))

    def _drawn(self, mean: float, *key: object) -> float:
        spread = self.node.spread
        return mean * random.Random(str(key)).lognormvariate(-spread * spread / 2, spread)


def model(options: argparse.Namespace, console: Console) -> None:
    table = Table("GPUs", "n", "s a step", "to 8 shared, n = 0", "sampling GPUs busy", "staleness, mean (max)")
    first = 0.0
    nodes = [Node(8, 0, 0)]
    nodes += [Node(8 - learners, learners, n) for learners in (1, 2, 4) for n in (0, 1, 2, 4)]
    for node in nodes:
        done, skipped = Simulation(node, options.steps).run(), options.steps // 4
        seconds = (done.finished[-1] - done.finished[skipped - 1]) / (options.steps - skipped)
        first = first or seconds
        layout = f"{node.samplers} sample, {node.learners} train" if node.learners else "8 sample, then train"
        busy = fmean(gpu.busy for gpu in done.gpus) / done.now
        stale = f"{fmean(done.staleness):.2f} ({max(done.staleness)})"
        table.add_row(layout, f"{node.staleness}", f"{seconds:.1f}", f"{first / seconds:.2f} x", f"{busy:.0%}", stale)
    console.print(f"Assumed: {nodes[0]}")
    console.print(table)


class SlowEngine:
    """An index whose searches take a random time, uniform around the latency."""

    is_local = False

    def __init__(self, index: LexicalIndex, latency: float) -> None:
        self._index, self._latency, self._rng = index, latency, random.Random(0)

    async def search(self, queries, k):
        await asyncio.sleep(self._rng.uniform(0.5, 1.5) * self._latency)
        return await self._index.search(queries, k)


def make_worlds(directory: Path, seed: int) -> None:
    make_world(directory / "train", "train", seed, TRAINING_QUESTIONS, TRAINING_HOPS)
    make_world(directory / "evaluation", "evaluation", seed, 500, EVALUATION_HOPS)


def speed(options: argparse.Namespace, console: Console) -> None:
    seconds: dict[int, list[float]] = {n: [] for n in options.n}
    with TemporaryDirectory() as folder:
        root = Path(folder)
        make_world(root / "train", "train", 0, 200, TRAINING_HOPS, entities=300)
        for round_number in range(options.rounds):
            for n in options.n:
                run = Run(
                    "search-r1",
                    root / f"run-{round_number}-{n}",
                    settings={
                        "search.index": root / "train" / "index",
                        "questions.path": root / "train" / "questions.jsonl",
                        "questions.per_step": 5,
                        "rollout.group_size": 4,
                        "rollout.max_staleness": n,
                        "sampler.slots": 20 * (max(options.n) + 1),
                        "run.steps": options.steps,
                        "run.checkpoint_every": options.steps,
                    },
                    search=SlowEngine(LexicalIndex.open(root / "train" / "index"), options.latency),
                    console=Console(quiet=True),
                )
                run.train()
                rows = read_metrics(run.directory.timings)[max(options.n) + 1 :]
                seconds[n] += [row["step/seconds"] for row in rows]
    table = Table("n", "s a step (median)", "lowest to highest", f"to n = {options.n[0]}")
    for n, found in seconds.items():
        ratio = median(seconds[options.n[0]]) / median(found)
        table.add_row(f"{n}", f"{median(found):.2f}", f"{min(found):.2f} to {max(found):.2f}", f"{ratio:.2f} x")
    console.print(f"20 rollouts a step, searches of {options.latency:g} s, {options.rounds} rounds")
    console.print(table)


def learn(options: argparse.Namespace, console: Console) -> None:
    table = Table("seed", "n", "held-out EM before", "after", "training reward, last 5", "staleness, mean", "deviation")
    for seed in options.seeds:
        for n in options.n:
            directory = options.directory / f"seed-{seed}"
            make_worlds(directory, seed)
            settings = demo_options(directory, seed) | {
                "evaluation.limit": options.questions,
                "evaluation.every": 0,
                "rollout.max_staleness": n,
                "run.steps": options.steps,
            }
            run = Run("search-r1", directory / f"run-{n}", settings=settings, console=Console(quiet=True))
            run.train()
            rows = read_metrics(run.directory.metrics)
            last = rows[-5:]
            table.add_row(
                *(f"{seed}", f"{n}", f"{rows[0]['eval/reward']:.3f}", f"{rows[-1]['eval/reward']:.3f}"),
                f"{fmean(row['reward'] for row in last):.3f}",
                f"{fmean(row.get('rollout/staleness/mean', 0.0) for row in last):.2f}",
                f"{fmean(row.get('sampling/importance_sampling_ratio/deviation', 0.0) for row in last):.4f}",
            )
            console.print(f"seed {seed}, n = {n}: {rows[0]['eval/reward']:.3f} -> {rows[-1]['eval/reward']:.3f}")
    console.print(table)
    console.print(f"{options.steps} steps, {options.questions} held-out questions")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(required=True)
    for command in (model, speed, learn):
        part = parts.add_parser(command.__name__)
        part.set_defaults(command=command)
        part.add_argument("--steps", type=int, default={"model": 24, "speed": 8, "learn": 60}[command.__name__])
        if command is not model:
            part.add_argument("--n", type=int, nargs="+", default=[0, 1, 2])
        if command is speed:
            part.add_argument("--latency", type=float, default=0.5, help="seconds of a search, on average")
            part.add_argument("--rounds", type=int, default=3)
        if command is learn:
            part.add_argument("--directory", type=Path, default=Path("runs/staleness"))
            part.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
            part.add_argument("--questions", type=int, default=500, help="held-out ones")
    options = parser.parse_args()
    options.command(options, Console(width=160))


if __name__ == "__main__":
    main()
