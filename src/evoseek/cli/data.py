"""`evoseek data`: the commands that prepare questions for training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from evoseek.cli.options import JudgeModel, Model, Seed, finish, new_group
from evoseek.training.interrupt import end_on_interrupt

data = new_group("Prepare questions for training.")
Source = Annotated[Path, typer.Argument(help="JSON lines: question, golden_answers.")]
Kept = Annotated[Path, typer.Argument(help="The JSONL file for what is kept. The same command resumes it.")]


@data.command("filter")
def filter_data(
    questions: Source,
    out: Kept,
    model: JudgeModel = None,
    seed: Seed = None,
) -> None:
    """Sort out questions that are time-sensitive, subjective or harmful, by the model in the settings of judge."""
    from evoseek.assembly.inputs import read_questions
    from evoseek.cli.settings import given_settings, working

    read_questions(str(questions), setting="the file of questions")
    given = given_settings({"judge.model": model, "run.seed": seed})
    given.read().judge.check("judge")
    with end_on_interrupt():
        from evoseek.curation.sorting import filter_questions

    plan = f"Sort out questions of {questions} by {given.read().judge.model}; write {out}"
    with working(given, plan) as context:
        finish(filter_questions(context, questions, out, console=Console()))


@data.command()
def contamination(
    questions: Source,
    out: Kept,
    model: Model = None,
    evaluation: Annotated[
        list[Path] | None, typer.Option(help="A file of evaluation questions; may be repeated.")
    ] = None,
    samples: Annotated[int, typer.Option(min=0, help="Number of closed-book answers of --model; 0: none.")] = 10,
    words: Annotated[int, typer.Option(min=1, help="Number of shared words in a row that count as an overlap.")] = 13,
    likeness: Annotated[
        float, typer.Option(help="Likeness from which two questions count as alike (Jaccard, MinHash).")
    ] = 0.8,
    seed: Seed = None,
) -> None:
    """Sort out questions that a model answers without searching, or that overlap with evaluation sets."""
    from evoseek.cli.settings import given_settings, working

    given = given_settings({"policy.model": model, "run.seed": seed})
    with end_on_interrupt():
        from evoseek.curation.contamination import find_contamination

    with working(given, f"Sort out questions of {questions} that are known or overlap; write {out}") as context:
        finished = find_contamination(
            context,
            questions,
            out,
            evaluation=evaluation or (),
            samples=samples,
            words=words,
            likeness=likeness,
            console=Console(),
        )
    finish(finished)
