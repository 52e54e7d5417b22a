"""Six algorithms and what their papers claim, at the same number of rollouts: the table beside their recipes.

Every run trains the tiny policy on a generated world and is examined on another, whose names occur nowhere in training:
500 questions, 1 to 4 hops in equal shares, answered at the training temperature; intervals are 95 %. A run ends with
the step in which it reaches --rollouts, whatever it did with them: a filter's discarded rollouts count. All rewards are
exact match. Seconds are of rollouts and optimizer steps, without evaluations.

DSPO without its filter is GSPO, without its sequence ratio DAPO; "unmasked" trains on the passages too. "bf16" computes
the updates in bfloat16 and samples in float32: the smallest clip there is must not take its rounding for a new policy.
"rounding" is what it would cost if it did: each sequence's old logprobs are off by a constant, normal, with the mean
absolute value of `--rounding`. Scored in other rows than its pass, SmolLM2 in bfloat16 with AMX was off by .0093.

    python bench/algorithms.py --directory runs/algorithms --seeds 0 1 2

Results are kept (result.json in each run's folder) and not computed again, so several processes may share the work with
--only, and the table can be printed at any time with --table.
"""

import argparse
import asyncio
import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean

from rich.console import Console
from rich.table import Table

from evoseek.assembly.context import Context
from evoseek.assembly.inputs import read_questions
from evoseek.assembly.settings import TrainingSettings
from evoseek.assembly.sources import load_settings
from evoseek.cli.learning_demo import EVALUATION_HOPS, TRAINING_HOPS, TRAINING_QUESTIONS
from evoseek.config.settings_tree import FOLDER
from evoseek.errors import EvoseekError
from evoseek.eval.held_out import HeldOutScores, held_out_scores
from evoseek.storage.checkpoints import Checkpoint, latest_checkpoint
from evoseek.storage.files import write_atomic
from evoseek.storage.metrics import read_metrics
from evoseek.storage.runs import RunDirectory
from evoseek.training.train import training_loop
from evoseek.types import TrainingSample
from evoseek.world.world import make_world

RECIPES = FOLDER / "algorithms"
QUESTIONS = 500
UNMASKED = "algorithm.mask_observations=false"
BF16 = "learner.bf16=true"
ONE = "algorithm.mini_batches=1"


@dataclass(frozen=True)
class Variant:
    """A recipe, and what is set otherwise."""

    recipe: str
    sets: tuple[str, ...] = ()
    rounding: bool = False


VARIANTS = {
    **{name: Variant(name) for name in ("reinforce", "grpo", "ppo", "dapo", "gspo", "dspo")},
    "grpo, unmasked": Variant("grpo", (UNMASKED,)),
    "dspo, unmasked": Variant("dspo", (UNMASKED,)),
    "gspo, bf16": Variant("gspo", (BF16,)),
    "dspo, bf16": Variant("dspo", (BF16,)),
    "dspo, one mini-batch": Variant("dspo", (ONE,)),
    "dspo, rounding": Variant("dspo", rounding=True),
}


def make_config(directory: Path, variant: Variant, seed: int, sets: list[str]) -> TrainingSettings:
    worlds = directory / f"worlds-{seed}"
    make_world(worlds / "train", "train", seed, TRAINING_QUESTIONS, TRAINING_HOPS)
    make_world(worlds / "evaluation", "evaluation", seed, QUESTIONS, EVALUATION_HOPS)
    return load_settings(
        RECIPES / f"{variant.recipe}.toml",
        options={
            "search.index": str(worlds / "train" / "index"),
            "questions.path": str(worlds / "train" / "questions.jsonl"),
            "evaluation.index": str(worlds / "evaluation" / "index"),
            "evaluation.path": str(worlds / "evaluation" / "questions.jsonl"),
            "evaluation.limit": 100,
            "evaluation.every": 5,
            "run.seed": seed,
            "run.steps": 100_000,
        },
        sets=(*variant.sets, *sets),
    )


def examine(settings: TrainingSettings, checkpoint: Checkpoint | None) -> HeldOutScores:
    """All of the held-out questions, at the training temperature."""
    questions = read_questions(settings.evaluation.path, setting="evaluation.path")
    with Context(settings, checkpoint=checkpoint) as context:
        roller = context.solver(context.searched_held_out).at(settings.rollout.temperature)
        return asyncio.run(held_out_scores(questions, roller=roller, metric=context.metric, reward=context.reward))


def rounded(samples: Sequence[TrainingSample], size: float) -> list[TrainingSample]:
    """The samples with old logprobs that are off by a constant of each, which its id draws."""

    def off(sample: TrainingSample) -> tuple[float, ...]:
        error = random.Random(sample.id).gauss(0.0, size * math.sqrt(math.pi / 2))
        old = sample.old_logprobs or ()
        return tuple(value + error if acts else 0.0 for value, acts in zip(old, sample.loss_mask, strict=True))

    return [replace(sample, old_logprobs=off(sample)) for sample in samples]


def train(config: TrainingSettings, run: RunDirectory, rollouts: int, rounding: float) -> dict[str, object]:
    """Train until that many rollouts are made; what it came to. A policy that diverges is a result, too."""
    diverged = ""
    with run.locked(), training_loop(config, run, notify=lambda _: None) as loop:
        if rounding:
            update = loop.system.update
            noisy = replace(update, compared=[*update.compared, partial(rounded, size=rounding)])
            loop.system = replace(loop.system, update=noisy)
        loop.should_stop = lambda: count_rollouts(run) >= rollouts
        try:
            asyncio.run(loop.run())
        except EvoseekError as error:
            diverged = str(error)
    checkpoint = latest_checkpoint(run.path)
    evaluation = examine(config, checkpoint)
    timings = read_metrics(run.timings)
    rows = read_metrics(run.metrics)
    return {
        "em": evaluation.score.mean,
        "interval": [evaluation.score.interval.low, evaluation.score.interval.high],
        "by_hops": {str(hops): score.mean for hops, score in evaluation.by_hops().items()},
        "steps": checkpoint.step if checkpoint else 0,
        "rollouts": count_rollouts(run),
        "seconds": sum((row.get("rollout/seconds") or 0) + (row.get("learner/seconds") or 0) for row in timings),
        "clipped": mean(row["clip_ratio/region_mean"] for row in rows if "clip_ratio/region_mean" in row),
        "curve": [(row["step"], row["eval/reward"]) for row in rows if "eval/reward" in row],
        "diverged": diverged,
    }


def count_rollouts(run: RunDirectory) -> int:
    return int(sum(row.get("rollout/num") or 0 for row in read_metrics(run.metrics)))


def count_quiet(run: RunDirectory) -> int:
    """In how many steps no group had a signal."""
    return sum(row.get("frac_reward_zero_std") == 1.0 for row in read_metrics(run.metrics))


def show(results: dict[str, dict[int, dict]], console: Console) -> None:
    table = Table("algorithm", "held-out EM", "by seed, with 95 % intervals", "lowest on a curve after its best")
    for column in ("3-4 hops", "steps", "no signal", "clipped", "rollouts", "seconds"):
        table.add_column(column, justify="right")
    for name, by_seed in results.items():
        found = [by_seed[seed] for seed in sorted(by_seed)]
        table.add_row(
            name + " *" * any(result["diverged"] for result in found),
            f"{mean(result['em'] for result in found):.3f}",
            "  ".join(f"{r['em']:.3f} [{r['interval'][0]:.2f}, {r['interval'][1]:.2f}]" for r in found),
            "  ".join(f"{fall(result['curve']):.2f}" for result in found),
            f"{mean((result['by_hops']['3'] + result['by_hops']['4']) / 2 for result in found):.3f}",
            f"{mean(result['steps'] for result in found):.0f}",
            str(sum(result["no_signal"] for result in found)),
            f"{mean(result.get('clipped', math.nan) for result in found):.3f}",
            f"{mean(result['rollouts'] for result in found):.0f}",
            f"{mean(result['seconds'] for result in found):.0f}",
        )
    console.print(table)
    for name, by_seed in results.items():
        for seed, result in sorted(by_seed.items()):
            curve = "  ".join(f"{step}: {value:.2f}" for step, value in result["curve"])
            console.print(f"{name}, seed {seed}, held-out by step: {curve}")
    console.print(f"n = {QUESTIONS} a seed. *: a run ended because its policy diverged.")


def fall(curve: list[tuple[int, float]]) -> float:
    """How far the held-out reward falls below what it had reached before."""
    best, deepest = -math.inf, 0.0
    for _, value in curve:
        best = max(best, value)
        deepest = min(deepest, value - best)
    return deepest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=Path("runs/algorithms"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rollouts", type=int, default=4000)
    parser.add_argument("--only", nargs="+", default=list(VARIANTS), choices=list(VARIANTS), metavar="NAME")
    parser.add_argument("--set", action="append", default=[], help="a setting for all runs")
    parser.add_argument("--rounding", type=float, default=0.0093)
    parser.add_argument("--table", action="store_true", help="only print what there is")
    options = parser.parse_args()
    console = Console(width=180)
    for seed in options.seeds:
        for name in options.only:
            folder = options.directory / f"{name.replace(', ', '-').replace(' ', '-')}-{seed}"
            if options.table or (folder / "result.json").exists():
                continue
            config = make_config(options.directory, VARIANTS[name], seed, options.set)
            rounding = options.rounding if VARIANTS[name].rounding else 0.0
            result = train(config, RunDirectory(folder / "run"), options.rollouts, rounding)
            write_atomic(folder / "result.json", json.dumps(result))
            console.print(
                f"{name}, seed {seed}: {result['em']:.3f}, {result['steps']} steps, {result['seconds']:.0f} s"
            )
    results: dict[str, dict[int, dict]] = {}
    for name in VARIANTS:
        for seed in options.seeds:
            path = options.directory / f"{name.replace(', ', '-').replace(' ', '-')}-{seed}" / "result.json"
            if path.exists():
                quiet = count_quiet(RunDirectory(path.parent / "run"))
                results.setdefault(name, {})[seed] = {**json.loads(path.read_text()), "no_signal": quiet}
    show(results, console)


if __name__ == "__main__":
    main()
