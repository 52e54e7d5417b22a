"""`evoseek data`: the commands that prepare questions for training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from evoseek.cli.options import (
    JUDGE,
    FixedSeed,
    Index,
    JudgeModel,
    Model,
    Seed,
    command,
    finish,
    new_group,
    stop_if_dry,
)
from evoseek.errors import ConfigError
from evoseek.training.interrupt import end_on_interrupt

data = new_group("Prepare questions for training.")
Source = Annotated[Path, typer.Argument(help="JSON lines: question, golden_answers.")]
Kept = Annotated[Path, typer.Argument(help="The JSONL file for what is kept. The same command resumes it.")]


@data.command("filter")
@command("data filter", reads=JUDGE)
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
@command("data contamination", reads="policy.* lora.* sampler.* rollout.* run.seed run.max_invalid")
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


@data.command("audit")
@command("data audit", reads="policy.* lora.* sampler.* search.* rollout.* run.seed")
def audit_data(
    questions: Source,
    out: Annotated[Path, typer.Argument(help="The JSONL file to write: the answerable questions.")],
    index: Index = None,
) -> None:
    """Find out which questions a corpus can answer at all: golden answers and evidence in it, and in the engine's first
    100 passages; golden answers that say nothing."""
    from evoseek.cli.settings import given_settings, working
    from evoseek.search.lexical import check_index

    given = given_settings({"search.index": index})
    searched = given.read().search
    check_index(searched.index, setting="--index", engine=searched)
    with end_on_interrupt():
        from evoseek.curation.audit import audit_questions

    with working(given, f"Look for the answers to {questions} in {searched.index}; write {out}") as context:
        audit_questions(context, questions, out, console=Console())


@data.command("mix")
@command("data mix")
def mix_data(
    out: Annotated[Path, typer.Argument(help="The JSONL file to write.")],
    sources: Annotated[list[str], typer.Option("--from", help="FILE=SHARE, as in nq.jsonl=1; once for each file.")],
    count: Annotated[int, typer.Option(min=1, help="How many questions.")],
    seed: FixedSeed = 0,
) -> None:
    """Draw questions from several files in a ratio, as --from nq.jsonl=1 --from hotpotqa.jsonl=3."""
    from evoseek.curation.mixing import mix_questions

    shares = _shares(sources)
    stop_if_dry([f"Draw {count} questions from {', '.join(map(str, shares))} (seed {seed}); write {out}"])
    mix_questions(shares, out, count=count, seed=seed, console=Console())


def _shares(sources: Sequence[str]) -> dict[Path, float]:
    shares: dict[Path, float] = {}
    for text in sources:
        name, _, share = text.rpartition("=")
        try:
            shares[Path(name)] = float(share)
        except ValueError as error:
            raise ConfigError(f"--from is {text!r}; expected FILE=SHARE, as in nq.jsonl=1.") from error
    if len(shares) < len(sources):
        raise ConfigError("--from names a file twice. Give each file once, with its share.")
    return shares
