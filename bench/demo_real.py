"""A real model trained on documents alone, and what changed: `make demo-real`.

    python bench/demo_real.py [--data FOLDER] [--run-dir DIRECTORY] [--model NAME] [--seed 0] [--max-minutes 60]

FOLDER has the documents, corpus.jsonl, and for the score labelled questions, dev.jsonl; without these the questions
that the cold start holds out are scored. Without --data the manual of Python's standard library is used. What the cold
start and both measurements leave of the minutes is for reinforcement learning.

demo-real/data/    corpus.jsonl and dev.jsonl: the manual, unless a folder was given
demo-real/index/   passages of at most 40 words
demo-real/run/     the model's cold start and reinforcement learning, on questions written about the documents

Ctrl-C ends it (status 130), and the same command resumes.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from rich.console import Console

from evoseek.assembly.context import Context
from evoseek.assembly.inputs import read_questions
from evoseek.cli.learning_demo import RECIPE, SAMPLED, Learnt, measure, program, show
from evoseek.cli.main import run_command
from evoseek.config.sections import with_setting
from evoseek.errors import ConfigError, DataError
from evoseek.eval.tables import answers_grid, terminal
from evoseek.models.lora import check_peft
from evoseek.models.source import SHIPPED, SMOLLM2
from evoseek.run import Run
from evoseek.search.indexing import IndexPlan, build_index
from evoseek.storage.runs import RunDirectory
from evoseek.text.printable import say
from evoseek.training.cold_start import FOLDER, ColdStart
from evoseek.training.interrupt import INTERRUPTED
from evoseek.training.train import trained_seconds
from evoseek.types import Question
from manual import read_library, standard_library, write_manual

PASSAGE_WORDS = 40
QUESTIONS = 120
# A policy that has learnt to search twice is measured for longer than before.
MEASURING = 1 + 1.75
MINUTES = {"index and questions": 2.0, "demonstrations": 13.0, "first measurement": 4.0, "last measurement": 7.0}
"""Estimates for SmolLM2-135M and the manual on two idle cores; what is left is for reinforcement learning."""


def demo(directory: Path, data: Path | None, *, model: str, seed: int, max_minutes: float, console: Console) -> bool:
    """False if Ctrl-C ended it early. Raises DataError for a folder without documents."""
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
    questions = held_out(labelled or _read_labelled(files.held_out), QUESTIONS)
    say(console, f"Measuring the policy of the cold start on {len(questions)} held-out questions ...")
    begun = perf_counter()
    with Context(run.settings) as context:
        before = measure(context, questions)
    spent = files.writing_seconds + trained_seconds(RunDirectory(files.model))
    left = minutes_left(max_minutes, spent, perf_counter() - begun)
    run.settings = with_setting(run.settings, "run.max_minutes", left)
    say(console, f"Reinforcement learning for at most {left:.1f} minutes ...")
    run.train()
    if run.is_interrupted:
        return False
    say(console, "Measuring it after training ...")
    with run.context() as context:
        learnt = Learnt(before, measure(context, questions))
    for name, evaluations in (("before", learnt.before), ("after", learnt.after)):
        grid = answers_grid(evaluations[SAMPLED].scored.answers(), evaluations[SAMPLED].metric)
        console.print(terminal(replace(grid, title=f"Held-out answers, sampled, {name}")))
    show(learnt, run.settings, console)
    say(console, f"Curves and rollouts: {program()} view {shlex.quote(str(path.path))}")
    say(console, "Are the questions right that were written about the documents? Judge 30 that nothing was trained on:")
    say(console, f"  {program()} review {shlex.quote(str(path.path))}")
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


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--run-dir", type=Path, default=Path("demo-real"))
    parser.add_argument("--model", default=SMOLLM2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-minutes", type=float, default=60.0)
    given = parser.parse_args(words)

    def run() -> int:
        if not 0 < given.max_minutes < float("inf"):
            raise ConfigError(f"--max-minutes is {given.max_minutes}; it has to be a number above 0.")
        length = {"seed": given.seed, "max_minutes": given.max_minutes}
        return 0 if demo(given.run_dir, given.data, model=given.model, **length, console=Console()) else INTERRUPTED

    return run_command(run)


if __name__ == "__main__":
    raise SystemExit(main())
