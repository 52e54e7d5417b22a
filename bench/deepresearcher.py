"""A policy that learns to search and to browse a generated web: what the recipe quotes.

For each seed the tiny policy that browses is trained on the site of one world and examined on that of another, with
other names: 500 questions, 1 to 4 hops in equal shares, answered at the training temperature; exact match with 95 %
intervals, and F1 over sets of words. Both sites are really served, on the loopback. Snippets mostly do not suffice.
Faults befall so many of the requests for results and pages while the policy is trained (429, 503, captcha, reset, wrong
length, nothing for ever, in equal shares); it is examined on a web without them.

    python bench/deepresearcher.py --directory runs/deepresearcher                  everything (hours)
    python bench/deepresearcher.py --only clean "faults 20 %" --seeds 0             some arms
    python bench/deepresearcher.py --table                                          what there is

Results are kept (result.json in each run's folder) and not computed again. A run that was ended (Ctrl-C finishes the
step) is resumed by the same command; its seconds and requests are then those since.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from threading import Event, Thread
from time import perf_counter

from rich.console import Console
from rich.table import Table

from evoseek.assembly.context import Context
from evoseek.assembly.settings import TrainingSettings
from evoseek.assembly.sources import load_settings
from evoseek.config.settings_tree import find_recipe
from evoseek.errors import EvoseekError
from evoseek.eval.held_out import held_out_scores
from evoseek.questions.questions import load_questions, save_questions
from evoseek.reward.functions import AnswerReward
from evoseek.storage.checkpoints import latest_checkpoint
from evoseek.storage.files import write_atomic
from evoseek.storage.metrics import read_metrics
from evoseek.storage.runs import RunDirectory
from evoseek.systems.deepresearcher import browsed
from evoseek.text.normalization import set_f1
from evoseek.training.interrupt import INTERRUPTED
from evoseek.training.train import train as train_run
from evoseek.world.site import Site
from evoseek.world.world import Split, World

sys.path.append(str(Path(__file__).parents[1]))  # for tests

from tests.doubles.world_site import WorldSite

ENTITIES, TRAINING_QUESTIONS, QUESTIONS, HOPS = 1000, 2000, 500, (1, 2, 3, 4)
FAULTS = ("too_many", "unavailable", "captcha", "reset", "wrong_length", "hang")


@dataclass(frozen=True)
class Arm:
    """The share of requests that meet a fault while training, a recipe over the tiny one, and what is set otherwise."""

    faults: float = 0.0
    over: str = ""
    sets: tuple[str, ...] = ()

    @property
    def recipes(self) -> list[Path]:
        """The config files, those that go over others last."""
        over = [find_recipe(f"ablations/deepresearcher/{self.over}")] if self.over else []
        return [find_recipe("deepresearcher/tiny"), *over]


ARMS = {
    "clean": Arm(),
    "faults 5 %": Arm(0.05),
    "faults 20 %": Arm(0.2),
    "faults 50 %": Arm(0.5),
    "longer": Arm(sets=("run.steps=60",)),
    "four hops": Arm(over="four_hops"),
}
PATIENCE = {  # short, as nothing is far away, and many attempts, as half of them may fail
    "browse.timeout_s": 6.0,
    "search.attempts": 8,
    "search.wait_s": 0.05,
}


@contextmanager
def served(split: Split, seed: int, questions: int, folder: Path, share: float = 0.0) -> Iterator[WorldSite]:
    """A world's site, in a thread of its own; its questions in `folder`."""
    world = World.generate(seed, ENTITIES, split)
    server, ready, ended, runner = WorldSite(Site(world, seed)), Event(), asyncio.Event(), asyncio.Runner()
    for switches in (server.page_faults, server.search_faults):
        switches.set({name: share / len(FAULTS) for name in FAULTS} if share else {})
    if not (path := folder / f"{split}.jsonl").exists():
        save_questions(path, world.questions(questions, seed=seed, hops=HOPS))

    failed: list[BaseException] = []

    async def serve() -> None:
        async with server.serving():
            ready.set()
            await ended.wait()

    def run() -> None:
        try:
            runner.run(serve())
        except Exception as error:
            failed.append(error)
        finally:
            ready.set()

    thread = Thread(target=run)
    thread.start()
    try:
        ready.wait()
        if failed:
            raise failed[0]
        yield server
    finally:
        if not failed:
            runner.get_loop().call_soon_threadsafe(ended.set)
        thread.join()
        runner.close()


def make_config(server: WorldSite, seed: int, questions: Path, arm: Arm) -> TrainingSettings:
    options = {
        "questions.path": str(questions),
        "run.seed": seed,
        "web.url": f"{server.url}/searxng/search",
        "browse.allow_private": [server.url.removeprefix("http://")],
        "run.max_invalid": 0.5,  # which the arm with half of all requests failing needs
        **PATIENCE,
    }
    return load_settings(arm.recipes, options=options, sets=arm.sets)


def examine(seed: int, folder: Path, run: Path | None) -> dict:
    """The policy of a run, or the one to begin with, on another world's site."""
    with served("evaluation", seed, QUESTIONS, folder) as server:
        config = make_config(server, seed, folder / "evaluation.jsonl", ARMS["clean"])
        with Context(config, checkpoint=latest_checkpoint(run) if run is not None else None) as context:
            questions = load_questions(folder / "evaluation.jsonl")
            roller = context.solver(context.searched_held_out).at(config.rollout.temperature)
            evaluation = asyncio.run(
                held_out_scores(questions, roller=roller, metric="exact_match", reward=AnswerReward())
            )
    rollouts = [one.trajectory for one in evaluation.drawn]
    scored = [one.trajectory for one in evaluation.drawn if one.sample.invalid is None]
    answered = [(rollout.answer or "", rollout.question) for rollout in scored]
    by_hops = {hops: [one for one in rollouts if one.question.metadata["hops"] == hops] for hops in HOPS}
    return {
        "em": evaluation.score.mean,
        "interval": [evaluation.score.interval.low, evaluation.score.interval.high],
        "invalid": evaluation.score.n_invalid,
        "by_hops": {str(hops): score.mean for hops, score in evaluation.by_hops().items()},
        "set_f1": fmean(set_f1(answer, question.golden_answers) for answer, question in answered),
        "share": {str(hops): fmean(map(browsed, rollouts)) for hops, rollouts in by_hops.items()},
        "turns": {str(hops): fmean(len(t.actions) for t in rollouts) for hops, rollouts in by_hops.items()},
    }


def train(seed: int, name: str, directory: Path) -> dict:
    arm, folder = ARMS[name], directory / f"worlds-{seed}"
    run = RunDirectory(directory / arm_folder(name, seed) / "run")
    folder.mkdir(parents=True, exist_ok=True)
    started, ended = perf_counter(), ""
    with served("train", seed, TRAINING_QUESTIONS, folder, arm.faults) as server:
        config = make_config(server, seed, folder / "train.jsonl", arm)
        with run.locked():
            try:
                if train_run(config, run, console=Console()).interrupted:
                    raise SystemExit(INTERRUPTED)
            except EvoseekError as error:
                ended = str(error)
        counts = dict(server.counts)
    rows = read_metrics(run.metrics)
    kept = ("step", "reward", "rollout/invalid_frac", "rollout/refilled")
    return {
        **examine(seed, folder, run.path),
        "seconds": perf_counter() - started,
        "requests": counts,
        "rows": [{k: v for k, v in row.items() if k in kept or k.startswith("browsing/")} for row in rows],
        "ended": ended,
    }


def arm_folder(name: str, seed: int) -> str:
    faults = round(100 * ARMS[name].faults)
    return f"faults-{faults}-{seed}" if faults or name == "clean" else f"{name.replace(' ', '-')}-{seed}"


def show(found: Mapping[str, Mapping[int, dict]], start: Mapping[int, dict], console: Console) -> None:
    scores = Table("arm", "EM", "by seed, with 95 % intervals", "1, 2, 3, 4 hops", "set F1")
    for column in ("given up", "failed attempts a rollout", "requests that met a fault", "seconds"):
        scores.add_column(column, justify="right")
    arms = {name: by_seed for name, by_seed in {"start": start, **found}.items() if by_seed}
    for name, by_seed in arms.items():
        results = [by_seed[seed] for seed in sorted(by_seed)]
        rows = [row for result in results for row in result.get("rows", [])]
        scores.add_row(
            name + " *" * any(result.get("ended") for result in results),
            f"{fmean(e['em'] for e in results):.3f}",
            "  ".join(f"{e['em']:.3f} [{e['interval'][0]:.2f}, {e['interval'][1]:.2f}]" for e in results),
            " ".join(f"{fmean(e['by_hops'][str(hops)] for e in results):.2f}" for hops in HOPS),
            f"{fmean(e['set_f1'] for e in results):.3f}",
            f"{fmean(row['rollout/invalid_frac'] for row in rows):.2%}" if rows else "-",
            f"{fmean(row.get('rollout/refilled') or 0 for row in rows):.2f}" if rows else "-",
            _faulty(results),
            f"{fmean(result['seconds'] for result in results):.0f}" if rows else "-",
        )
    console.print(scores)
    curves = Table("step", "reward", *(f"browse, {h} hops" for h in HOPS), *(f"turns, {h} hops" for h in HOPS))
    clean = [result["rows"] for result in found.get("clean", {}).values()]
    for steps in zip(*clean, strict=False):
        if steps[0]["step"] in (1, 2, 3, 5) or steps[0]["step"] % 5 == 0:
            names = ["reward", *(f"browsing/{what}/hops_{h}" for what in ("share", "turns") for h in HOPS)]
            curves.add_row(str(int(steps[0]["step"])), *(f"{fmean(row[name] for row in steps):.2f}" for name in names))
    console.print(curves)
    for name, by_seed in arms.items():
        for seed, result in sorted(by_seed.items()):
            shares, turns = (" ".join(f"{one:.2f}" for one in result[what].values()) for what in ("share", "turns"))
            console.print(f"{name}, seed {seed}, held out, by hops: share that opens a page {shares}, turns {turns}")
            if result.get("ended"):
                console.print(f"* {name}, seed {seed}: {result['ended']}")
    console.print(f"n = {QUESTIONS} a seed.")


def _faulty(results: list[dict]) -> str:
    counts = [result.get("requests", {}) for result in results]
    asked = sum(count.get("page", 0) + count.get("search", 0) for count in counts)
    met = sum(number for count in counts for kind, number in count.items() if kind.partition(" ")[2] in FAULTS)
    return f"{met / asked:.1%} of {asked:,}" if asked else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=Path("runs/deepresearcher"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", default=list(ARMS), metavar="ARM", choices=list(ARMS))
    parser.add_argument("--table", action="store_true", help="only print what there is")
    options = parser.parse_args()
    console = Console(width=220)
    found: dict[str, dict[int, dict]] = {}
    start: dict[int, dict] = {}
    for seed in options.seeds:
        begin = options.directory / f"start-{seed}.json"
        if not begin.exists() and not options.table:
            (folder := options.directory / f"worlds-{seed}").mkdir(parents=True, exist_ok=True)
            write_atomic(begin, json.dumps(examine(seed, folder, None)))
        if begin.exists():
            start[seed] = json.loads(begin.read_text())
        for name in options.only:
            path = options.directory / arm_folder(name, seed) / "result.json"
            if not path.exists() and not options.table:
                try:
                    write_atomic(path, json.dumps(train(seed, name, options.directory)))
                except EvoseekError as error:  # another process is at it, or it cannot begin
                    console.print(f"{name}, seed {seed}: {error}")
            if path.exists():
                found.setdefault(name, {})[seed] = json.loads(path.read_text())
    show(found, start, console)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
