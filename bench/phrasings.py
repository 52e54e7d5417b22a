"""Does practice in one wording teach others? And does a falling learning rate help? The demo's task, by arms:

    plain      questions in the plainest wording: "What is Ada's mother's employer?"
    mixed      half of them as "What is the employer of the mother of Ada?"
    all        a third each; the last is "Name the employer of Ada's mother."
    constant   plain, at a constant learning rate (the recipe search-r1/tiny lets it fall after 25 and 40 steps)

Each policy makes `STEPS` steps on as many questions about a generated world, and then answers `--questions` about
another world, whose names occur nowhere in training, in each of the three wordings, at the training temperature. The
policy of the first step was taught by demonstrations of which a fifth has one of the other two wordings.

    python bench/phrasings.py --directory runs/phrasings [--arms plain mixed] [--seeds 0 1 2]
    python bench/phrasings.py --directory runs/phrasings --table

Results are kept, so several processes may share the work, and a run that was interrupted goes on.
"""

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.table import Table

from evoseek.assembly.inputs import read_questions
from evoseek.cli.learning_demo import ENTITIES, EVALUATION_HOPS, TRAINING_HOPS, TRAINING_QUESTIONS
from evoseek.eval.results import value_of
from evoseek.eval.statistics import paired_test, wilson_interval
from evoseek.questions.questions import save_questions
from evoseek.run import Run
from evoseek.search.lexical import LexicalIndex
from evoseek.storage.files import write_atomic
from evoseek.world.world import World

STEPS = 60
WORDINGS = ("What is A's b's c?", "What is the c of the b of A?", "Name the c of A's b.")
ARMS: Mapping[str, tuple[int, ...]] = {"plain": (0,), "mixed": (0, 1), "all": (0, 1, 2), "constant": (0,)}
BEFORE = "before"


def make_worlds(folder: Path, seed: int, number: int) -> None:
    """The two indexes, questions of each arm, and those held out in each wording."""
    if (folder / "done").exists():
        return
    for split in ("train", "evaluation"):
        world = World.generate(seed, ENTITIES, split)
        LexicalIndex.build(folder / f"{split}-index", world.passages())
        if split == "evaluation":
            for wording in range(len(WORDINGS)):
                questions = world.questions(number, seed=seed, hops=EVALUATION_HOPS, phrasing=wording)
                save_questions(folder / f"evaluation-{wording}.jsonl", questions)
            continue
        for wordings in set(ARMS.values()):
            share = TRAINING_QUESTIONS // len(wordings)
            parts = [world.questions(share, seed=seed, hops=TRAINING_HOPS, phrasing=wording) for wording in wordings]
            questions = [
                replace(question, id=f"{question.id}-{wording}")
                for wording, part in zip(wordings, parts, strict=True)
                for question in part
            ]
            save_questions(folder / f"train-{len(wordings)}.jsonl", questions)
    write_atomic(folder / "done", "")


def measure(directory: Path, arm: str, seed: int, number: int) -> list[dict[str, float]]:
    """Rewards by question, in each wording, after the arm's training."""
    worlds = directory / f"worlds-{seed}"
    make_worlds(worlds, seed, number)
    settings: dict[str, object] = {
        "search.index": worlds / "train-index",
        "questions.path": worlds / f"train-{len(ARMS.get(arm, (0,)))}.jsonl",
        "evaluation.index": worlds / "evaluation-index",
        "evaluation.path": worlds / "evaluation-0.jsonl",
        "evaluation.limit": 100,
        "evaluation.every": 20,
        "run.seed": seed,
        "run.steps": STEPS,
    }
    if arm == "constant":
        settings["stages"] = []
    run = Run("search-r1", directory / f"{arm}-{seed}", config="search-r1/tiny", settings=settings)
    if arm != BEFORE:
        run.train()
    files = [str(worlds / f"evaluation-{wording}.jsonl") for wording in range(len(WORDINGS))]
    found = (run.evaluate(read_questions(file, setting="questions")).results for file in files)
    return [{one.question: value_of(one, results.metric) for one in results.samples} for results in found]


def score(rewards: Sequence[float]) -> str:
    interval = wilson_interval(round(sum(rewards)), len(rewards))
    return f"{fmean(rewards):.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def show(found: Mapping[tuple[str, int], list[dict[str, float]]], console: Console) -> None:
    """A row for each run, and each arm's paired difference to `plain` over all seeds."""
    table = Table("arm", "seed", *WORDINGS)
    for (arm, seed), scores in found.items():
        table.add_row(arm, str(seed), *(score(list(rewards.values())) for rewards in scores))
    console.print(table)
    for arm in ("mixed", "all", "constant"):
        seeds = [seed for kind, seed in found if kind == arm and ("plain", seed) in found]
        for wording, text in enumerate(WORDINGS if seeds else ()):
            pairs = [
                (before, found[arm, seed][wording][key])
                for seed in seeds
                for key, before in found["plain", seed][wording].items()
            ]
            test = paired_test([before for before, _ in pairs], [after for _, after in pairs])
            console.print(
                f"{arm} - plain, {text:30} {test.difference:+.3f} (p = {test.p_value:.2g}, n = {test.n}, "
                f"{len(seeds)} seeds)"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=Path("runs/phrasings"))
    parser.add_argument("--arms", nargs="+", choices=(BEFORE, *ARMS), default=[BEFORE, *ARMS])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--questions", type=int, default=500, help="held-out questions in each wording")
    parser.add_argument("--table", action="store_true", help="only print what there is")
    options = parser.parse_args()
    found: dict[tuple[str, int], list[dict[str, float]]] = {}
    for arm in options.arms:
        for seed in options.seeds:
            kept = options.directory / f"{arm}-{seed}.json"
            if not kept.exists() and not options.table:
                write_atomic(kept, json.dumps(measure(options.directory, arm, seed, options.questions)))
            if kept.exists():
                found[arm, seed] = json.loads(kept.read_text())
    show(found, Console(width=150))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
