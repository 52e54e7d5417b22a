"""The demonstration with a real model on real text: warm start, reinforcement learning, and held-out scores by hops.

demo-real/data/     corpus.jsonl, train.jsonl, dev.jsonl, demonstrations.jsonl: the manual, unless a folder was given
demo-real/index/    passages of at most 40 words
demo-real/sft/      the warm start
demo-real/run/      reinforcement learning
demo-real/measuring.json  seconds of the first measurement
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from rich.console import Console

from evoseek.errors import DataError
from evoseek.files import write_atomic
from evoseek.jobs.before_after import Learnt, measure, show
from evoseek.jobs.index import IndexPlan, build_index
from evoseek.learner.checkpoint import latest_checkpoint
from evoseek.manual import read_library, standard_library, write_manual
from evoseek.policy.lora import check_peft
from evoseek.report.printable import say
from evoseek.runs import RunDirectory
from evoseek.train import draw, train, trained_seconds
from evoseek.training.context import Context
from evoseek.training.given import load_settings
from evoseek.training.settings import TrainingSettings
from evoseek.training.sources import read_questions
from evoseek.types import Question

MODEL = "smollm2-135m"
RECIPES = (Path("search-r1/smollm2"), Path("search-r1/hops"))
PASSAGE_WORDS = 40
EVALUATION_QUESTIONS = 100
# A policy that has learnt to search twice is measured for longer than before: five minutes after three in the
# transcript of docs/real-models.md.
MEASURING = 1 + 1.75
FILES = ("corpus.jsonl", "train.jsonl", "dev.jsonl", "demonstrations.jsonl")


def run_real_demo(
    directory: Path, data: Path | None, *, model: str = MODEL, seed: int, max_minutes: float, console: Console
) -> bool:
    """Train a model on a folder of real text, and print what changed, in about so many minutes for everything.

    What the warm start and both measurements leave is for reinforcement learning. `data` has the four files; without it
    the manual of Python's standard library is used. A second call resumes. False if Ctrl-C ended it early. Raises
    DataError for a folder without them.
    """
    data = data or _manual(directory / "data", console)
    _check(data)
    if load_settings(RECIPES).lora.rank:
        check_peft()
    read_questions(str(data / "train.jsonl"), setting="train.jsonl")  # mistakes are told before the warm start
    questions = held_out(read_questions(str(data / "dev.jsonl"), setting="dev.jsonl"), EVALUATION_QUESTIONS)
    build_index(data / "corpus.jsonl", directory / "index", IndexPlan(max_words=PASSAGE_WORDS), console=console)
    shared = {"search.index": str(directory / "index"), "run.seed": seed}
    say(console, "Warm start: supervised fine-tuning on demonstrations ...")
    demonstrations = {"policy.model": model, "demonstrations.path": str(data / "demonstrations.jsonl"), **shared}
    warm = RunDirectory(directory / "sft")
    if not _train(load_settings(Path("sft/smollm2"), options=demonstrations), warm, console):
        return False
    options = {"policy.model": str(warm.path), "questions.path": str(data / "train.jsonl"), **shared}
    say(console, f"Measuring the policy before reinforcement learning on {len(questions)} held-out questions ...")
    started = perf_counter()
    with Context(load_settings(RECIPES, options=options)) as context:
        before = measure(context, questions)
    measuring = first_seconds(directory / "measuring.json", perf_counter() - started)
    left = minutes_left(max_minutes, trained_seconds(warm), measuring)
    settings = load_settings(RECIPES, options={**options, "run.max_minutes": left})
    run = RunDirectory(directory / "run")
    say(console, f"Reinforcement learning for at most {left:.1f} minutes ...")
    if not _train(settings, run, console):
        return False
    say(console, "Measuring it after training ...")
    with Context(settings, checkpoint=latest_checkpoint(run.path)) as context:
        show(Learnt(before, measure(context, questions)), settings, console)
    draw(run, console)
    return True


def held_out(questions: Sequence[Question], number: int) -> list[Question]:
    """The first so many questions, with the same share of each number of hops."""
    by_hops: dict[object, list[Question]] = {}
    for question in questions:
        by_hops.setdefault(question.metadata.get("hops"), []).append(question)
    share = max(1, number // len(by_hops))
    return [question for part in by_hops.values() for question in part[:share]]


def minutes_left(max_minutes: float, training: float, measuring: float) -> float:
    """What is left for reinforcement learning after `training` seconds of warm start and a first measurement of
    `measuring` seconds, the second one set aside; a moment at least."""
    return max(max_minutes - (training + MEASURING * measuring) / 60, 0.05)


def first_seconds(path: Path, seconds: float) -> float:
    """The seconds that the first call gave, so that a second one leaves a run as much time as the first did. A file
    that holds no such number is written anew."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["seconds"]
        if 0 < float(found) < float("inf"):
            return float(found)
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        pass
    write_atomic(path, json.dumps({"seconds": seconds}))
    return seconds


def _manual(folder: Path, console: Console) -> Path:
    if not folder.exists():
        source = standard_library()
        say(console, f"Reading the manual of Python's standard library in {source} ...")
        write_manual(folder, read_library(source))
    return folder


def _check(data: Path) -> None:
    if missing := [name for name in FILES if not (data / name).is_file()]:
        raise DataError(
            f"{data} has no {' and no '.join(missing)}. Expected a folder with {', '.join(FILES)}: documents, "
            "questions to train on and held-out ones (with metadata.hops), and demonstrations as `evoseek sft` reads "
            "them. Without --data the manual of Python's standard library is used."
        )


def _train(settings: TrainingSettings, run: RunDirectory, console: Console) -> bool:
    with run.locked():
        return not train(settings, run, console=console).interrupted
