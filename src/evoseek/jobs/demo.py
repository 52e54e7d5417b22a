"""The demonstration: the embedded policy learns to search, in minutes, with no network and no GPU.

demo/train/        world to train on: index, questions.jsonl
demo/evaluation/   world to evaluate on, with names that occur nowhere in training
demo/run/          the run
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from evoseek.jobs.before_after import Learnt, best_example, measure, show
from rich.console import Console

from evoseek.corpus.questions import save_questions
from evoseek.errors import ConfigError, TrainingError
from evoseek.eval.evaluate import Evaluation
from evoseek.learner.checkpoint import latest_checkpoint
from evoseek.learner.distributed import run_together
from evoseek.recipes.catalogue import find_recipe
from evoseek.report.printable import say
from evoseek.runs import RunDirectory
from evoseek.search.lexical import LexicalIndex
from evoseek.train import draw, seconds_left, train
from evoseek.training.context import Context
from evoseek.training.given import load_settings
from evoseek.training.interrupt import INTERRUPTED
from evoseek.training.settings import TrainingSettings
from evoseek.training.sources import read_questions
from evoseek.world.world import Split, World, load_world, save_world_card

ENTITIES = 1000
TRAINING_QUESTIONS = 4000
TRAINING_HOPS = (1, 2, 2, 3, 3, 4, 4)  # the policy can do one hop already, so such questions are rarer
EVALUATION_HOPS = (1, 2, 3, 4)
EVALUATION_QUESTIONS = 500
OTHER_PHRASING = 1
RECIPE = "search-r1/tiny"


def run_demo(directory: Path, *, seed: int, max_minutes: float, processes: int | None = None, console: Console) -> bool:
    """Train, and print what changed. Returns False if Ctrl-C ended it early."""
    learnt = learn(directory, seed=seed, max_minutes=max_minutes, processes=processes, console=console)
    if learnt is None:
        return False
    show(learnt, demo_settings(directory, seed), console)
    draw(RunDirectory(directory / "run"), console)
    question = best_example(learnt)[1].question.text
    say(console, f"Ask it something about the held-out world:\n  {_ask_line(directory, question)}")
    return True


def learn(
    directory: Path, *, seed: int, max_minutes: float, processes: int | None = None, console: Console
) -> Learnt | None:
    """Generate worlds, measure, train by GRPO, measure again.

    `processes` train together: by default two, where there are two cores. A second call resumes an unfinished run, or
    measures a finished one again without training. None if Ctrl-C ended it early.
    """
    run = RunDirectory(directory / "run")
    with run.locked():
        make_world(directory / "train", "train", seed, TRAINING_QUESTIONS, TRAINING_HOPS)
        make_world(directory / "evaluation", "evaluation", seed, EVALUATION_QUESTIONS, EVALUATION_HOPS)
        settings = demo_settings(directory, seed)
        say(console, f"Worlds in {directory}: {ENTITIES} entities each, names of the evaluation world held out.")
        say(console, f"Measuring the policy before training on {EVALUATION_QUESTIONS} held-out questions ...")
        with Context(settings) as context:
            before = _measure(context)
    options = {**demo_options(directory, seed), "run.max_minutes": max_minutes}
    if not _train(options, run, processes or min(2, os.cpu_count() or 1), console):
        return None
    say(console, "Measuring it after training ...")
    with Context(settings, checkpoint=latest_checkpoint(run.path)) as context:
        return Learnt(before, _measure(context))


def make_world(
    directory: Path, split: Split, seed: int, questions: int, hops: Sequence[int], *, entities: int | None = None
) -> None:
    """Generate a world's index, card and questions, unless they are there. The same seed gives the same files."""
    if (directory / "questions.jsonl").exists():
        if (made := load_world(directory / "world.json").seed) != seed:
            raise ConfigError(
                f"{directory} holds the world of seed {made}, but the seed is {seed}. Give the same seed, or another "
                "--run-dir."
            )
        return
    world = World.generate(seed, entities or ENTITIES, split)
    LexicalIndex.build(directory / "index", world.passages())
    save_world_card(directory / "world.json", world)
    save_questions(
        directory / "rephrased.jsonl", world.questions(EVALUATION_QUESTIONS, seed=seed, phrasing=OTHER_PHRASING)
    )
    save_questions(directory / "questions.jsonl", world.questions(questions, seed=seed, hops=hops))


def demo_settings(directory: Path, seed: int) -> TrainingSettings:
    """The recipe's, on the demo's worlds."""
    return load_settings(find_recipe(RECIPE), options=demo_options(directory, seed))


def demo_options(directory: Path, seed: int) -> dict[str, object]:
    """The settings of the demo that are not the recipe's."""
    return {
        "search.index": str(directory / "train" / "index"),
        "questions.path": str(directory / "train" / "questions.jsonl"),
        "evaluation.index": str(directory / "evaluation" / "index"),
        "evaluation.path": str(directory / "evaluation" / "questions.jsonl"),
        "evaluation.limit": 100,
        "evaluation.every": 10,
        "run.seed": seed,
    }


def _measure(context: Context) -> dict[str, Evaluation]:
    path = context.settings.evaluation.path
    questions, rephrased = (
        read_questions(name, setting="evaluation.path") for name in (path, str(Path(path).with_name("rephrased.jsonl")))
    )
    return measure(context, questions, {"other phrasing": rephrased})


def _train(options: Mapping[str, object], run: RunDirectory, processes: int, console: Console) -> bool:
    """Train to the end of the minutes, in so many processes; False if Ctrl-C ended it earlier."""
    settings = load_settings(find_recipe(RECIPE), options=options)
    made = latest_checkpoint(run.path)
    if made is not None and (made.step >= settings.run.steps or seconds_left(settings, run) <= 0):
        say(console, f"{run.path} is trained already ({made.step} steps): its results are shown again.")
        return True
    if processes == 1:
        with run.locked():
            return not train(settings, run, console=console).interrupted
    words = ["train", "--config", RECIPE, "--run-dir", str(run.path)]
    status = run_together(processes, [*words, *(f"--set={name}={value}" for name, value in options.items())])
    if status not in (0, INTERRUPTED):
        raise TrainingError(f"Training ended with status {status}, and said why above. The same command resumes it.")
    return status == 0


def _ask_line(directory: Path, question: str) -> str:
    program = "evoseek" if shutil.which("evoseek") else os.path.relpath(sys.argv[0])
    words = [program, "ask", "--run-dir", str(directory / "run"), "--index", str(directory / "evaluation" / "index")]
    quoted = shlex.quote(question) if set(question) & set('"$`\\!') else f'"{question}"'
    return f"{shlex.join(words)} {quoted}"
