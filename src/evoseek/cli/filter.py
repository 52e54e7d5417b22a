"""`evoseek filter`: sorts out questions that are useless for training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from evoseek.cli.options import Model, Seed, command, finish
from evoseek.training.interrupt import end_on_interrupt

Evaluation = Annotated[list[Path] | None, typer.Option(help="A file of evaluation questions; may be repeated.")]


@command("filter", reads="judge.* policy.* lora.* sampler.* rollout.* run.seed run.max_invalid")
def filter_questions(
    questions: Annotated[Path, typer.Argument(help="JSON lines: question, golden_answers.")],
    out: Annotated[Path, typer.Argument(help="JSONL file for the questions that are kept. The same command resumes.")],
    evaluation: Evaluation = None,
    judge: Annotated[str | None, typer.Option(help="Model that judges, as in judge.model.")] = None,
    model: Model = None,
    samples: Annotated[int, typer.Option(min=0, help="Number of closed-book answers of --model; 0: none.")] = 10,
    words: Annotated[int, typer.Option(min=1, help="Number of shared words in a row that are an overlap.")] = 13,
    likeness: Annotated[float, typer.Option(help="Minimum Jaccard similarity of near-duplicates (MinHash).")] = 0.8,
    seed: Seed = None,
) -> None:
    """Sort out questions that overlap with evaluation sets (--evaluation), that a judge finds time-sensitive,
    subjective or harmful (--judge), or that a model answers without searching (--model).

    Example: evoseek filter questions.jsonl good.jsonl --evaluation held-out.jsonl --judge JUDGE
    """
    from evoseek.assembly.inputs import read_questions
    from evoseek.cli.settings import given_settings, working

    read_questions(str(questions), setting="the file of questions")
    given = given_settings({"judge.model": judge, "policy.model": model, "run.seed": seed})
    with end_on_interrupt():
        from evoseek.curation.filtering import Filter

    wanted = Filter(evaluation or (), samples, words, likeness)
    with working(given, f"Sort out questions of {questions}; write {out}") as context:
        finish(wanted.run(context, questions, out, console=Console()))
