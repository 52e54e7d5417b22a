"""The demonstrations: a policy learns to search, is measured before and after, and answers a question it has learnt.

demo/train/        a generated world to train on: index, questions.jsonl
demo/evaluation/   a world to evaluate on, with names that occur nowhere in training
demo/run/          the run of the tiny policy: minutes, with no network and no GPU

demo-real/data/    corpus.jsonl and, for the score, dev.jsonl: the manual, unless a folder was given
demo-real/index/   passages of at most 40 words
demo-real/run/     a real model's cold start and reinforcement learning, on questions written about the documents
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter

from rich.console import Console

from evoseek.checkpoints import latest_checkpoint
from evoseek.cold_start.phase import FOLDER, ColdStart
from evoseek.corpus.questions import save_questions
from evoseek.data.indexing import IndexPlan, build_index
from evoseek.errors import ConfigError, DataError, TrainingError
from evoseek.eval.evaluate import Evaluation, Result, evaluate
from evoseek.eval.support import support_of
from evoseek.learner.distributed import run_together
from evoseek.manual import read_library, standard_library, write_manual
from evoseek.policy.lora import check_peft
from evoseek.policy.source import SHIPPED
from evoseek.recipes import find_recipe
from evoseek.report.answers import answer_text
from evoseek.report.evaluation import Grid, answers_grid, score_grid, terminal
from evoseek.report.printable import say
from evoseek.run import Run
from evoseek.runs import RunDirectory
from evoseek.search.lexical import LexicalIndex
from evoseek.settings import with_setting
from evoseek.statistics import paired_test
from evoseek.train import draw, seconds_left, trained_seconds
from evoseek.training.context import Context
from evoseek.training.given import load_settings
from evoseek.training.inputs import read_questions
from evoseek.training.interrupt import INTERRUPTED
from evoseek.training.settings import TrainingSettings
from evoseek.types import Question
from evoseek.world.world import Split, World, load_world, save_world_card

ENTITIES = 1000
TRAINING_QUESTIONS = 4000
TRAINING_HOPS = (1, 2, 2, 3, 3, 4, 4)  # the policy can do one hop already, so such questions are rarer
EVALUATION_HOPS = (1, 2, 3, 4)
EVALUATION_QUESTIONS = 500
OTHER_PHRASING = 1
RECIPE = "search-r1/tiny"

MODEL = "smollm2-135m"
PASSAGE_WORDS = 40
REAL_QUESTIONS = 120
# A policy that has learnt to search twice is measured for longer than before.
MEASURING = 1 + 1.75
MINUTES = {"index and questions": 2.0, "demonstrations": 13.0, "first measurement": 4.0, "last measurement": 7.0}
"""Estimates for SmolLM2-135M and the manual on two idle cores; what is left is for reinforcement learning."""
SAMPLED, GREEDY = "sampled", "greedy"


@dataclass(frozen=True, slots=True)
class Learnt:
    """Held-out scores by name (`SAMPLED`, `GREEDY`, ...) before and after training; the same names in both."""

    before: dict[str, Evaluation]
    after: dict[str, Evaluation]


def run_demo(directory: Path, *, seed: int, max_minutes: float, processes: int | None = None, console: Console) -> bool:
    """Train the tiny policy on a generated world, and print what changed. Returns False if Ctrl-C ended it early."""
    learnt = learn(directory, seed=seed, max_minutes=max_minutes, processes=processes, console=console)
    if learnt is None:
        return False
    _show(learnt, _settings(demo_options(directory, seed)), console)
    draw(RunDirectory(directory / "run"), console)
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
        make_world(directory / "train", "train", seed, TRAINING_QUESTIONS, TRAINING_HOPS)
        make_world(directory / "evaluation", "evaluation", seed, EVALUATION_QUESTIONS, EVALUATION_HOPS)
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


def _settings(options: Mapping[str, object]) -> TrainingSettings:
    return load_settings(find_recipe(RECIPE), options=options)


def _measure_both_phrasings(context: Context) -> dict[str, Evaluation]:
    path = context.settings.evaluation.path
    questions, rephrased = (
        read_questions(name, setting="evaluation.path") for name in (path, str(Path(path).with_name("rephrased.jsonl")))
    )
    return measure(context, questions, {"other phrasing": rephrased})


def _train(options: Mapping[str, object], directory: Path, processes: int, console: Console) -> bool:
    """Train to the end of the minutes, in so many processes; False if Ctrl-C ended it earlier."""
    settings, made = _settings(options), latest_checkpoint(directory)
    if made is not None and (made.step >= settings.run.steps or seconds_left(settings, RunDirectory(directory)) <= 0):
        say(console, f"{directory} is trained already ({made.step} steps): its results are shown again.")
        return True
    if processes == 1:
        return _trained(Run(directory=directory, settings=settings, console=console))
    words = ["train", "--config", RECIPE, "--run-dir", str(directory)]
    status = run_together(processes, [*words, *(f"--set={name}={value}" for name, value in options.items())])
    if status not in (0, INTERRUPTED):
        raise TrainingError(
            f"Training ended with status {status}, for the reason printed above. The same command resumes it."
        )
    return status == 0


def _trained(run: Run) -> bool:
    """Train; False if Ctrl-C ended it early."""
    run.train()
    return not run.is_interrupted


def _ask_line(directory: Path, question: str) -> str:
    words = [_program(), "ask", "--run-dir", str(directory / "run"), "--index", str(directory / "evaluation" / "index")]
    quoted = shlex.quote(question) if set(question) & set('"$`\\!') else f'"{question}"'
    return f"{shlex.join(words)} {quoted}"


def _program() -> str:
    return "evoseek" if shutil.which("evoseek") else os.path.relpath(sys.argv[0])


def run_real_demo(
    directory: Path, data: Path | None, *, model: str = MODEL, seed: int, max_minutes: float, console: Console
) -> bool:
    """Train a model on documents alone, and print what changed, in about so many minutes for everything.

    `data` has the documents, corpus.jsonl, and for the score labelled questions, dev.jsonl, or else those that the cold
    start holds out are scored. Without `data` the manual of Python's standard library is used. What the cold start and
    both measurements leave is for reinforcement learning. A second call resumes. False if Ctrl-C ended it early. Raises
    DataError for a folder without documents.
    """
    say(console, plan(max_minutes))
    data = data or _manual(directory / "data", console)
    labelled = _labelled(data, console)
    options = {"policy.model": model, "search.index": str(directory / "index"), "run.seed": seed}
    path = RunDirectory(directory / "run")
    recipes = (RECIPE if model in SHIPPED else "search-r1/smollm2", "search-r1/documents")
    run = Run(directory=path, config=recipes, settings=options, console=console)
    if run.settings.lora.rank:
        check_peft()
    build_index(data / "corpus.jsonl", directory / "index", IndexPlan(max_words=PASSAGE_WORDS), console=console)
    if not run.cold_start():
        return False
    files = ColdStart(path.path / FOLDER)
    questions = held_out(labelled or _read_labelled(files.held_out), REAL_QUESTIONS)
    say(console, f"Measuring the policy of the cold start on {len(questions)} held-out questions ...")
    begun = perf_counter()
    with Context(run.settings) as context:
        before = measure(context, questions)
    spent = files.writing_seconds + trained_seconds(RunDirectory(files.model))
    left = minutes_left(max_minutes, spent, perf_counter() - begun)
    run.settings = with_setting(run.settings, "run.max_minutes", left)
    say(console, f"Reinforcement learning for at most {left:.1f} minutes ...")
    if not _trained(run):
        return False
    say(console, "Measuring it after training ...")
    with run.context() as context:
        learnt = Learnt(before, measure(context, questions))
    for name, evaluations in (("before", learnt.before), ("after", learnt.after)):
        grid = answers_grid(evaluations[SAMPLED].scored.answers())
        console.print(terminal(replace(grid, title=f"Held-out answers, sampled, {name}")))
    _show(learnt, run.settings, console)
    draw(path, console)
    say(console, "Are the questions right that were written about the documents? Judge 30 that nothing was trained on:")
    say(console, f"  {_program()} review {shlex.quote(str(path.path))}")
    return True


def plan(max_minutes: float) -> str:
    """What the phases take, in words."""
    phases = [f"{name} {minutes:g}" for name, minutes in MINUTES.items()]
    phases.insert(-1, f"reinforcement learning {max(max_minutes - sum(MINUTES.values()), 0):g}")
    return (
        f"Planned for at most {max_minutes:g} minutes; those of SmolLM2-135M on two idle cores: {', '.join(phases)}. "
        "Ctrl-C ends it, and the same command resumes."
    )


def held_out(questions: Sequence[Question], number: int) -> list[Question]:
    """The first so many questions, with the same share of each number of hops."""
    by_hops: dict[object, list[Question]] = {}
    for question in questions:
        by_hops.setdefault(question.metadata.get("hops"), []).append(question)
    share = max(1, number // len(by_hops))
    return [question for part in by_hops.values() for question in part[:share]]


def minutes_left(max_minutes: float, cold_start: float, measuring: float) -> float:
    """What is left for reinforcement learning after `cold_start` seconds and a first measurement of `measuring`
    seconds, the second one set aside; a moment at least."""
    return max(max_minutes - (cold_start + MEASURING * measuring) / 60, 0.05)


def _manual(folder: Path, console: Console) -> Path:
    if not folder.exists():
        source = standard_library()
        say(console, f"Reading the manual of Python's standard library in {source} ...")
        write_manual(folder, read_library(source))
    return folder


def _labelled(data: Path, console: Console) -> list[Question]:
    """The questions for the score; none if the folder has documents alone."""
    if not (data / "corpus.jsonl").is_file():
        raise DataError(
            f"{data} has no corpus.jsonl. Expected a folder with documents as JSON lines (corpus.jsonl: id, title, "
            "text) and, for the score, labelled questions (dev.jsonl: question, golden_answers). Without --data the "
            "manual of Python's standard library is used; for files of other types make a project (evoseek init)."
        )
    if not (data / "dev.jsonl").exists():
        say(
            console,
            f"{data} has no dev.jsonl: the score will be on questions that the cold start writes and holds out.",
        )
        return []
    return _read_labelled(data / "dev.jsonl")


def _read_labelled(path: Path) -> list[Question]:
    return read_questions(str(path), setting="evaluation.path")


def measure(
    context: Context, questions: Sequence[Question], others: Mapping[str, Sequence[Question]] | None = None
) -> dict[str, Evaluation]:
    """The held-out scores of a policy: sampled as in training, greedy, sampled on other questions (by name), and
    without search."""
    searching, alone = context.solver(context.held_out_engine), context.agent.solver([])

    async def all_of_them() -> dict[str, Evaluation]:
        scored = partial(evaluate, metric=context.metric, reward=context.reward)
        return {
            SAMPLED: await scored(questions, roller=searching),
            GREEDY: await scored(questions, roller=searching.at(0.0)),
            **{f"{SAMPLED}, {name}": await scored(other, roller=searching) for name, other in (others or {}).items()},
            f"{SAMPLED}, search off": await scored(questions, roller=alone),
        }

    return asyncio.run(all_of_them())


def _show(learnt: Learnt, settings: TrainingSettings, console: Console) -> None:
    """Tables, a paired test, and one question as it was answered before and after."""
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
    old_result, new_result = _best_example(learnt)
    golden = " or ".join(new_result.question.golden_answers)
    say(console, f"\nOne question: {new_result.question.text}\nThe right answer: {golden}")
    for name, result in (("before", old_result), ("after", new_result)):
        say(console, f"\n{name.capitalize()}:")
        say(console, answer_text(result.trajectory, support_of(result.trajectory), refuses=False))


def hops_grid(title: str, before: Evaluation, after: Evaluation) -> Grid:
    """The scores before and after for each number of hops, and for all questions."""
    columns = {
        when: {str(hops): score for hops, score in one.by_hops().items()} | {"all": one.score}
        for when, one in (("before", before), ("after", after))
    }
    return score_grid(title, "hops", columns)


def _best_example(learnt: Learnt) -> tuple[Result, Result]:
    """The question with the most hops whose greedy answer, as by `ask`, training turned from wrong to right; any
    question if there is none."""
    old, new = (evaluations[GREEDY] for evaluations in (learnt.before, learnt.after))
    pairs = list(zip(old.results, new.results, strict=True))
    turned = [
        pair
        for pair in pairs
        if new.rewards().get(pair[1].question.id) == 1.0 and old.rewards().get(pair[0].question.id) == 0.0
    ]
    return max(turned or pairs, key=lambda pair: int(str(pair[0].question.metadata.get("hops", 0))))
