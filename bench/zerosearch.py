"""Search learnt from a simulated engine, on the generated world: what the recipe quotes.

A simulator is made once, from small worlds of the pretraining split: the tiny policy is taught on one more such world
to go on to the last hop, its searches in all of them are collected with real indices and labelled by truth, and the
untaught tiny policy is tuned on them. Then a policy is trained on each seed's training world with it, without an
index, and examined on another world with a real one: 500 questions, 1 to 4 hops in equal shares, answered at the
training temperature; exact match, with 95 % intervals.

    python bench/zerosearch.py --directory runs/zerosearch                     everything (hours)
    python bench/zerosearch.py --only zerosearch "real engine" --seeds 0 1     some arms
    python bench/zerosearch.py --table                                         what there is

Results are kept (result.json in each run's folder) and not computed again, so several processes may share the work.
"""

import argparse
import asyncio
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from time import perf_counter

from rich.console import Console
from rich.table import Table

from evoseek.assembly.context import Context, Objects
from evoseek.assembly.inputs import read_questions
from evoseek.assembly.settings import TrainingSettings
from evoseek.assembly.sources import load_settings
from evoseek.cli.learning_demo import EVALUATION_HOPS, TRAINING_HOPS, TRAINING_QUESTIONS
from evoseek.config.settings_tree import FOLDER, find_recipe
from evoseek.errors import EvoseekError
from evoseek.eval.held_out import HeldOutScores, held_out_scores
from evoseek.reward.functions import AnswerReward
from evoseek.search.lexical import LexicalIndex, open_index
from evoseek.storage.checkpoints import latest_checkpoint
from evoseek.storage.files import write_atomic
from evoseek.storage.metrics import read_metrics
from evoseek.storage.runs import RunDirectory
from evoseek.systems.zerosearch.check import check
from evoseek.systems.zerosearch.engine import simulated_engine
from evoseek.systems.zerosearch.searches import collect_searches, label_searches
from evoseek.systems.zerosearch.tuning import tune_simulator
from evoseek.training.train import training_loop
from evoseek.world.world import make_world
from selfplay import over_seeds

RECIPES = FOLDER / "zerosearch"
QUESTIONS = 500
COLLECTOR_WORLD, COLLECTORS = 7, {"reinforce": "real engine", "grpo": "real engine, grpo"}
WORLDS, ENTITIES, COLLECTED = 300, 300, 150  # many small ones: what is met often is learnt by heart, not copied
HELD_OUT = 1500  # questions of the world that the simulator is checked with
TUNING_STEPS, TOKENS_PER_STEP = 3500, 4096
CHECKED = 2000
TUNED = load_settings(
    RECIPES / "tiny.toml",
    sets=("learner.learning_rate=2e-3", "learner.warmup_steps=20", "learner.bf16=true", "learner.token_budget=4096"),
)


@dataclass(frozen=True, slots=True)
class Arm:
    """A recipe over the tiny one, another system, and who plays the engine."""

    over: str = ""
    system: str = "zerosearch"
    simulator: str = "tuned"
    sets: tuple[str, ...] = ()


ARMS = {
    "zerosearch": Arm(),
    "noise to 0.75": Arm(sets=("zerosearch.noise_end=0.75",)),
    "real engine": Arm(system="search-r1"),
    "constant 0.5": Arm("constant_noise"),
    "no noise": Arm("no_noise"),
    "prompted simulator": Arm(simulator="tiny"),
    "unmasked": Arm("unmasked"),
    "grpo": Arm("grpo"),
    "ppo": Arm("ppo"),
    "real engine, grpo": Arm("grpo", system="search-r1"),
    "real engine, ppo": Arm("ppo", system="search-r1"),
}
COMPARED = (("zerosearch", "no noise"), ("grpo", "real engine, grpo"))


class Cost:
    """How many queries a real index is asked for in the block, and how long it takes: added to what `path` says, so
    that what was ended and went on is counted whole."""

    def __init__(self, path: Path) -> None:
        self.path, self.queries, self._find = path, 0, LexicalIndex.find

    def __enter__(self) -> "Cost":
        def find(index: LexicalIndex, query: str, k: int) -> list:
            self.queries += 1
            return self._find(index, query, k)

        LexicalIndex.find = find
        self._started = perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        LexicalIndex.find = self._find
        queries, seconds = spent([self.path])
        cost = {"real_queries": queries + self.queries, "seconds": seconds + perf_counter() - self._started}
        write_atomic(self.path, json.dumps(cost))


def spent(paths: Iterable[Path]) -> tuple[int, float]:
    """Real queries and seconds, in all."""
    costs = [json.loads(path.read_text()) for path in paths if path.exists()]
    return sum(cost["real_queries"] for cost in costs), sum(cost["seconds"] for cost in costs)


def make_simulator(directory: Path, console: Console) -> Path:
    """The tuned simulator, made if it is not there, and checked."""
    place = directory / "simulator"
    by = collectors(place)
    if not (tuned := place / "tuned").exists():
        labelled = [label(place / f"world-{seed}", seed, by[seed % len(by)], console) for seed in range(WORLDS)]
        together = place / "labelled.jsonl"
        write_atomic(together, "".join(path.read_text() for path in labelled))
        steps, tokens = TUNING_STEPS, TOKENS_PER_STEP
        with Cost(place / "tuning.cost.json"):
            tune_simulator(TUNED, together, tuned, place / "work", steps=steps, tokens_per_step=tokens, console=console)
    held_out = place / "evaluation"
    make_world(held_out, "evaluation", WORLDS, HELD_OUT, EVALUATION_HOPS)
    collect(held_out, by[1], 1, console)
    for model, name in ((str(tuned), "tuned"), ("tiny", "prompted")):
        if (output := place / f"check-{name}.json").exists():
            continue
        settings = load_settings(RECIPES / "tiny.toml", options={"simulator.model": model})
        try:
            world, searches = held_out / "world.json", held_out / "searches.jsonl"
            with Context(settings) as context:
                engine = simulated_engine(context.settings)
                check(settings, engine, searches, world=world, count=CHECKED, output=output, console=console)
        except EvoseekError as error:  # a model that was never tuned may write nothing that can be read
            write_atomic(output, json.dumps({"problem": str(error)}))
            console.print(f"{name}: {error}")
    return tuned


def collectors(place: Path) -> list[RunDirectory | None]:
    """Who makes the searches: the tiny policy as it is, and as it becomes on a real index of another world. Between
    them they make most of the mistakes of a policy that learns, which a simulator will meet."""
    world = place / "collector-world"
    make_world(world, "pretrain", COLLECTOR_WORLD, TRAINING_QUESTIONS, EVALUATION_HOPS)
    runs: list[RunDirectory | None] = [None]
    for name, arm in COLLECTORS.items():
        run = RunDirectory(place / f"collector-{name}")
        config = real_config(ARMS[arm], 0, world)
        checkpoint = latest_checkpoint(run.path)
        if checkpoint is None or checkpoint.step < config.run.steps:
            cost = Cost(run.path / "cost.json")
            with run.locked(), cost, training_loop(config, run, notify=print) as loop:
                asyncio.run(loop.run())
        runs.append(run)
    return runs


def collect(world: Path, run: RunDirectory | None, pages: int, console: Console) -> Path:
    """The searches of a policy in a world's index."""
    if not (searches := world / "searches.jsonl").exists():
        paths = {"search.index": str(world / "index"), "questions.path": str(world / "questions.jsonl")}
        config = load_settings(RECIPES / "tiny.toml", options={**paths, "rollout.temperature": 1.0})
        checkpoint = None if run is None else latest_checkpoint(run.path)
        with Cost(world / "cost.json"), Context(config, checkpoint=checkpoint) as context:
            collect_searches(context, searches, pages=pages, limit=None, console=console)
    return searches


def label(world: Path, seed: int, run: RunDirectory | None, console: Console) -> Path:
    """Searches in a world of the pretraining split, labelled by truth."""
    make_world(world, "pretrain", seed, COLLECTED, EVALUATION_HOPS, entities=ENTITIES)
    searches, labelled = collect(world, run, 2, console), world / "labelled.jsonl"
    if not labelled.exists():
        with Context(TUNED) as context:
            label_searches(context, searches, labelled, world=world / "world.json", console=console)
    return labelled


def recipes(arm: Arm) -> list[Path]:
    over = [find_recipe(f"ablations/zerosearch/{arm.over}")] if arm.over else []
    return [RECIPES / "tiny.toml", *over]


def real_config(arm: Arm, seed: int, world: Path) -> TrainingSettings:
    """An arm's settings, with the world's index in the simulator's place."""
    paths = {"questions.path": str(world / "questions.jsonl"), "search.index": str(world / "index")}
    zerosearch = load_settings(recipes(arm))
    tables = ("rollout", "learner", "algorithm", "credit", "loss", "critic", "reward", "questions")
    same = {name: table for name, table in zerosearch.resolved().items() if name in tables}
    values = {f"{section}.{key}": value for section, keys in same.items() for key, value in keys.items()}
    steps, top_k = zerosearch.run.steps, zerosearch.search.top_k
    return load_settings(
        system="search-r1", options={**values, "run.steps": steps, "search.top_k": top_k, "run.seed": seed, **paths}
    )


def make_config(directory: Path, arm: Arm, seed: int, simulator: Path) -> TrainingSettings:
    worlds = directory / f"worlds-{seed}"
    make_world(worlds / "train", "train", seed, TRAINING_QUESTIONS, TRAINING_HOPS)
    make_world(worlds / "evaluation", "evaluation", seed, QUESTIONS, EVALUATION_HOPS)
    if arm.system != "zerosearch":
        return real_config(arm, seed, worlds / "train")
    options: dict[str, object] = {
        "questions.path": str(worlds / "train" / "questions.jsonl"),
        "simulator.model": str(simulator) if arm.simulator == "tuned" else arm.simulator,
        "run.seed": seed,
    }
    return load_settings(recipes(arm), options=options, sets=arm.sets)


def examine(config: TrainingSettings, worlds: Path, checkpoint: object) -> HeldOutScores:
    questions = read_questions(str(worlds / "evaluation" / "questions.jsonl"), setting="evaluation.path")
    index = open_index(str(worlds / "evaluation" / "index"), setting="evaluation.index")
    with Context(config, checkpoint=checkpoint, objects=Objects(search=index)) as context:
        roller = context.solver(index).at(config.rollout.temperature)
        return asyncio.run(held_out_scores(questions, roller=roller, metric="exact_match", reward=AnswerReward()))


def train(config: TrainingSettings, run: RunDirectory, worlds: Path) -> dict[str, object]:
    ended, cost = "", run.path.parent / "cost.json"
    with run.locked(), Cost(cost), training_loop(config, run, notify=print) as loop:
        try:
            asyncio.run(loop.run())
        except EvoseekError as error:
            ended = str(error)
    queries, seconds = spent([cost])
    evaluation = examine(config, worlds, latest_checkpoint(run.path))
    rows = read_metrics(run.metrics)
    return {
        "em": evaluation.score.mean,
        "interval": [evaluation.score.interval.low, evaluation.score.interval.high],
        "by_hops": {str(hops): score.mean for hops, score in evaluation.by_hops().items()},
        "seconds": seconds,
        "real_queries": queries,
        "simulated_queries": sum(row.get("simulator/queries") or 0 for row in rows),
        "rows": [
            {key: row[key] for key in ("step", "reward", "simulator/noise", "simulator/failed") if key in row}
            for row in rows
        ],
        "ended": ended,
    }


def show(found: dict[str, dict[int, dict]], start: dict[int, float], place: Path, console: Console) -> None:
    table = Table("arm", "held-out EM", "by seed, with 95 % intervals", "1, 2, 3, 4 hops")
    for column in ("real queries", "simulated", "failed", "seconds"):
        table.add_column(column, justify="right")
    for name, by_seed in found.items():
        results = [by_seed[seed] for seed in sorted(by_seed)]
        failed = [row["simulator/failed"] for result in results for row in result["rows"] if "simulator/failed" in row]
        table.add_row(
            name + " *" * any(result["ended"] for result in results),
            f"{fmean(result['em'] for result in results):.3f}",
            "  ".join(f"{r['em']:.3f} [{r['interval'][0]:.2f}, {r['interval'][1]:.2f}]" for r in results),
            " ".join(f"{fmean(r['by_hops'][str(hops)] for r in results):.2f}" for hops in EVALUATION_HOPS),
            f"{fmean(result['real_queries'] for result in results):.0f}",
            f"{fmean(result['simulated_queries'] for result in results):.0f}",
            f"{fmean(failed):.1%}" if failed else "-",
            f"{fmean(result['seconds'] for result in results):.0f}",
        )
    console.print(table)
    console.print("start: " + "  ".join(f"seed {seed}: {value:.3f}" for seed, value in sorted(start.items())))
    for name, by_seed in found.items():
        for seed, result in sorted(by_seed.items()):
            if result["ended"]:
                console.print(f"* {name}, seed {seed}: {result['ended']}")
    show_differences(found, console)
    console.print(f"n = {QUESTIONS} a seed.")
    stages = {
        "its collectors' training": list(place.glob("collector-*/cost.json")),
        "collecting": [place / f"world-{seed}" / "cost.json" for seed in range(WORLDS)],
        "tuning": [place / "tuning.cost.json"],
    }
    for stage, paths in stages.items():
        queries, seconds = spent(paths)
        console.print(f"the simulator, {stage}: {queries:,} real queries, {seconds:,.0f} s")


def show_differences(found: dict[str, dict[int, dict]], console: Console) -> None:
    """What the recipe asks: curriculum or none, simulated or real. The interval is Student's over the seeds."""
    for one, other in COMPARED:
        both = sorted(found.get(one, {}).keys() & found.get(other, {}).keys())
        pairs = [(found[one][seed]["em"], found[other][seed]["em"]) for seed in both]
        if pairs:
            ratio = sum(a for a, _ in pairs) / sum(b for _, b in pairs)
            told = f"{over_seeds([a - b for a, b in pairs])}; {ratio:.0%} of it"
            console.print(f"{one} - {other}, by seed: " + ", ".join(f"{a - b:+.3f}" for a, b in pairs) + f"; {told}")


def arm_folder(directory: Path, name: str, seed: int) -> Path:
    return directory / f"{name.replace(', ', '-').replace(' ', '-')}-{seed}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=Path("runs/zerosearch"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", default=list(ARMS), metavar="ARM", choices=list(ARMS))
    parser.add_argument("--table", action="store_true", help="only print what there is")
    options = parser.parse_args()
    console = Console(width=200)
    chosen = {name: arm for name, arm in ARMS.items() if name in options.only}
    if not options.table:
        tuned = any(arm.system == "zerosearch" and arm.simulator == "tuned" for arm in chosen.values())
        simulator = make_simulator(options.directory, console) if tuned else Path()
        for seed in options.seeds:
            for name, arm in chosen.items():
                folder = arm_folder(options.directory, name, seed)
                worlds = options.directory / f"worlds-{seed}"
                if (folder / "result.json").exists():
                    continue
                try:
                    result = train(
                        make_config(options.directory, arm, seed, simulator), RunDirectory(folder / "run"), worlds
                    )
                except EvoseekError as error:  # another process is at it, or it cannot begin
                    console.print(f"{name}, seed {seed}: {error}")
                    continue
                write_atomic(folder / "result.json", json.dumps(result))
                console.print(f"{name}, seed {seed}: {result['em']:.3f}, {result['seconds']:.0f} s")
    found: dict[str, dict[int, dict]] = {}
    start: dict[int, float] = {}
    for name in chosen:
        for seed in options.seeds:
            path = arm_folder(options.directory, name, seed) / "result.json"
            if path.exists():
                found.setdefault(name, {})[seed] = json.loads(path.read_text())
    for seed in options.seeds:
        if (worlds := options.directory / f"worlds-{seed}").exists():
            start[seed] = examine(
                load_settings(RECIPES / "tiny.toml", options={"run.seed": seed}), worlds, None
            ).score.mean
    show(found, start, options.directory / "simulator", console)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
