"""The demonstration: a policy learns to search, is measured before and after, and answers a question.

demo/train/        a generated world to train on: index, questions.jsonl
demo/evaluation/   a world to evaluate on, with names that occur nowhere in training
demo/run/          the run of the tiny policy: minutes, with no network and no GPU
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from evoseek.agent.shown import Answered
from evoseek.agent.support import support_of
from evoseek.assembly.context import Context
from evoseek.assembly.inputs import read_questions
from evoseek.assembly.settings import TrainingSettings
from evoseek.assembly.sources import load_settings
from evoseek.config.settings_tree import find_recipe
from evoseek.errors import TrainingError
from evoseek.eval.held_out import HeldOutScores, held_out_scores
from evoseek.eval.statistics import paired_test
from evoseek.eval.tables import Grid, score_grid, terminal
from evoseek.learner.distributed import run_together
from evoseek.run import Run
from evoseek.storage.checkpoints import latest_checkpoint
from evoseek.storage.runs import RunDirectory
from evoseek.text.printable import say
from evoseek.training.interrupt import INTERRUPTED
from evoseek.training.train import seconds_left
from evoseek.types import Question, Trajectory
from evoseek.world.world import make_world

ENTITIES = 1000
TRAINING_QUESTIONS = 4000
TRAINING_HOPS = (1, 2, 2, 3, 3, 4, 4)  # the policy already solves one hop, so those are rarer
EVALUATION_HOPS = (1, 2, 3, 4)
EVALUATION_QUESTIONS = 500
RECIPE = "search-r1/tiny"

SAMPLED, GREEDY = "sampled", "greedy"


@dataclass(frozen=True, slots=True)
class Learnt:
    """Held-out scores by name (`SAMPLED`, `GREEDY`, ...) before and after training; the same names in both."""

    before: dict[str, HeldOutScores]
    after: dict[str, HeldOutScores]


def run_demo(directory: Path, *, seed: int, max_minutes: float, processes: int | None = None, console: Console) -> bool:
    """Train the tiny policy on a generated world, and print what changed. Returns False if Ctrl-C ended it early."""
    learnt = learn(directory, seed=seed, max_minutes=max_minutes, processes=processes, console=console)
    if learnt is None:
        return False
    show(learnt, _settings(demo_options(directory, seed)), console)
    say(console, f"Curves and rollouts: {program()} view {shlex.quote(str(directory / 'run'))}")
    question = _best_example(learnt)[1].question.text
    say(console, f"Ask it something about the held-out world:\n  {_ask_line(directory, question)}")
    return True


def learn(
    directory: Path, *, seed: int, max_minutes: float, processes: int | None = None, console: Console
) -> Learnt | None:
    """Generate worlds, measure, train by GRPO, measure again.

    `processes` train together: by default two, where there are two cores. A second call resumes an unfinished run, or
    measures a finished one again without training. None if Ctrl-C ended it early.
    """
    options = demo_options(directory, seed)
    run = Run(directory=directory / "run", settings=_settings(options), console=console)
    with RunDirectory(directory / "run").locked():
        make_world(directory / "train", "train", seed, TRAINING_QUESTIONS, TRAINING_HOPS, entities=ENTITIES)
        held_out = directory / "evaluation"
        make_world(held_out, "evaluation", seed, EVALUATION_QUESTIONS, EVALUATION_HOPS, entities=ENTITIES)
        say(console, f"Worlds in {directory}: {ENTITIES} entities each, names of the evaluation world held out.")
        say(console, f"Measuring the policy before training on {EVALUATION_QUESTIONS} held-out questions ...")
        with Context(run.settings) as context:
            before = _measure_both_phrasings(context)
    limited = {**options, "run.max_minutes": max_minutes}
    if not _train(limited, directory / "run", processes or min(2, os.cpu_count() or 1), console):
        return None
    say(console, "Measuring it after training ...")
    with run.context() as context:
        return Learnt(before, _measure_both_phrasings(context))


def demo_options(directory: Path, seed: int) -> dict[str, object]:
    """Return the settings of the demo that are not the recipe's."""
    return {
        "search.index": str(directory / "train" / "index"),
        "questions.path": str(directory / "train" / "questions.jsonl"),
        "evaluation.index": str(directory / "evaluation" / "index"),
        "evaluation.path": str(directory / "evaluation" / "questions.jsonl"),
        "evaluation.limit": 100,
        "evaluation.every": 10,
        "run.seed": seed,
    }


def _settings(options: Mapping[str, object]) -> TrainingSettings:
    return load_settings(find_recipe(RECIPE), options=options)


def _measure_both_phrasings(context: Context) -> dict[str, HeldOutScores]:
    path = context.settings.evaluation.path
    questions, rephrased = (
        read_questions(name, setting="evaluation.path") for name in (path, str(Path(path).with_name("rephrased.jsonl")))
    )
    return measure(context, questions, {"other phrasing": rephrased})


def _train(options: Mapping[str, object], directory: Path, processes: int, console: Console) -> bool:
    """Train until the minutes are over, in `processes` processes; False if Ctrl-C ended it earlier."""
    settings, made = _settings(options), latest_checkpoint(directory)
    if made is not None and (made.step >= settings.run.steps or seconds_left(settings, RunDirectory(directory)) <= 0):
        say(console, f"{directory} is trained already ({made.step} steps): its results are shown again.")
        return True
    if processes == 1:
        run = Run(directory=directory, settings=settings, console=console)
        run.train()
        return not run.is_interrupted
    words = ["train", "--config", RECIPE, "--run-dir", str(directory)]
    status = run_together(processes, [*words, *(f"--set={name}={value}" for name, value in options.items())])
    if status not in (0, INTERRUPTED):
        raise TrainingError(
            f"Training ended with status {status}, for the reason printed above. The same command resumes it."
        )
    return status == 0


def _ask_line(directory: Path, question: str) -> str:
    words = [program(), "ask", "--run-dir", str(directory / "run"), "--index", str(directory / "evaluation" / "index")]
    quoted = shlex.quote(question) if set(question) & set('"$`\\!') else f'"{question}"'
    return f"{shlex.join(words)} {quoted}"


def program() -> str:
    """Return the command that calls this program from here."""
    return "evoseek" if shutil.which("evoseek") else os.path.relpath(Path(sys.executable).with_name("evoseek"))


def measure(
    context: Context, questions: Sequence[Question], others: Mapping[str, Sequence[Question]] | None = None
) -> dict[str, HeldOutScores]:
    """Return the held-out scores of a policy: sampled as in training, greedy, sampled on other questions (by name), and
    without search."""
    searching, alone = context.solver(context.held_out_engine), context.agent.solver([])

    async def all_of_them() -> dict[str, HeldOutScores]:
        scored = partial(held_out_scores, metric=context.metric, reward=context.reward)
        return {
            SAMPLED: await scored(questions, roller=searching),
            GREEDY: await scored(questions, roller=searching.at(0.0)),
            **{f"{SAMPLED}, {name}": await scored(other, roller=searching) for name, other in (others or {}).items()},
            f"{SAMPLED}, search off": await scored(questions, roller=alone),
        }

    return asyncio.run(all_of_them())


def show(learnt: Learnt, settings: TrainingSettings, console: Console) -> None:
    """Print tables, a paired test, and the answers to one question before and after."""
    before, after = learnt.before, learnt.after
    title = f"Held-out {settings.reward.name} with 95 % intervals"
    for name in (SAMPLED, GREEDY):
        drawn = f"temperature {settings.rollout.temperature:g}" if name == SAMPLED else name
        console.print(terminal(hops_grid(f"{title}, {drawn}", before[name], after[name])))
    means = {
        "before": {name: one.score for name, one in before.items()},
        "after": {name: one.score for name, one in after.items()},
    }
    console.print(terminal(score_grid(title, "", means)))
    old, new = (evaluations[SAMPLED].rewards() for evaluations in (before, after))
    shared = [key for key in old if key in new]
    test = paired_test([old[key] for key in shared], [new[key] for key in shared])
    say(console, f"Paired, sampled: {test.difference:+.3f} over {test.n} questions, p = {test.p_value:.2g}.")
    old_rollout, new_rollout = _best_example(learnt)
    question = new_rollout.question
    say(console, f"\nOne question: {question.text}\nThe right answer: {' or '.join(question.golden_answers)}")
    for name, rollout in (("Before", old_rollout), ("After", new_rollout)):
        say(console, f"\n{name}:")
        say(console, Answered(rollout, support_of(rollout), refuses=False).text)


def hops_grid(title: str, before: HeldOutScores, after: HeldOutScores) -> Grid:
    """Return the scores before and after for each number of hops, and for all questions."""
    columns = {
        when: {str(hops): score for hops, score in one.by_hops().items()} | {"all": one.score}
        for when, one in (("before", before), ("after", after))
    }
    return score_grid(title, "hops", columns)


def _best_example(learnt: Learnt) -> tuple[Trajectory, Trajectory]:
    """Return the rollouts of the question with the most hops whose greedy answer training turned from wrong to right;
    of any question if there is none."""
    old, new = (evaluations[GREEDY] for evaluations in (learnt.before, learnt.after))
    turned = {key for key, value in new.rewards().items() if value == 1.0 and old.rewards().get(key) == 0.0}
    pairs = [(one.trajectory, other.trajectory) for one, other in zip(old.drawn, new.drawn, strict=True)]
    best = [pair for pair in pairs if pair[1].question.id in turned]
    return max(best or pairs, key=lambda pair: int(str(pair[1].question.metadata.get("hops", 0))))
