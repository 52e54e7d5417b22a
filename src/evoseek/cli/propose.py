"""`evoseek propose` and `collect`: write questions and demonstrations to train on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from evoseek.cli.options import (
    ROLLOUTS,
    GrowingFile,
    Index,
    Model,
    Questions,
    RunDir,
    Seed,
    answerer_name,
    command,
    finish,
    stop_if_dry,
)
from evoseek.training.interrupt import end_on_interrupt


@command(
    "propose",
    reads="policy.* lora.* sampler.* search.* environment.* tools rollout.* reward.* judge.* proposer.* filters.* "
    "verification.* selfplay.* ssp.answers run.*",
    in_project=True,
)
def propose(
    index: Annotated[str, typer.Argument(help="Directory of an index made by `evoseek index`: the corpus.")],
    out: GrowingFile,
    system: Annotated[
        str | None,
        typer.Option(
            help="ssp: backwards from answers in the corpus, verified from the passages found; dr-zero: forwards from "
            "passages, unverified without --set verification.readings=1. Default: the run's, --config's or ssp."
        ),
    ] = None,
    model: Model = None,
    count: Annotated[int, typer.Option(min=1, help="Number of questions.")] = 100,
    max_proposals: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of proposals. Default: 20 per question.")
    ] = None,
    run_dir: Annotated[
        Path | None, typer.Option(help="Directory of a run of self-play: its proposer and solver are used.")
    ] = None,
    cold: Annotated[
        bool,
        typer.Option("--cold", help="Write them by rules from English sentences and headings, without a model."),
    ] = False,
    seed: Seed = None,
) -> None:
    """Write questions with answers, evidence and the solver's pass rate from a corpus. Ctrl-C leaves a usable file."""
    from evoseek.cli.settings import chosen_for_model, given_settings
    from evoseek.search.lexical import check_index

    options = {"search.index": index, "policy.model": model, "run.seed": seed}
    given = given_settings(options, run_dir, system=system, fallback="ssp")
    settings = given.read()
    check_index(settings.search.index, setting="search.index", engine=settings.search)
    if cold:
        stop_if_dry([f"Write {count} questions about {settings.search.index} to {out} by rules"], settings)
        from evoseek.training.cold_start import write_questions as write_cold

        write_cold(settings, out, count, console=Console())
        return
    with end_on_interrupt():
        from evoseek.selfplay.proposing import propose as write_questions
        from evoseek.storage.checkpoints import latest_checkpoint

    settings = chosen_for_model(settings, console=Console(stderr=True))
    checkpoint = latest_checkpoint(run_dir) if run_dir else None
    words = f"Write {count} questions about {settings.search.index} to {out} with {answerer_name(given, run_dir)}"
    stop_if_dry([words], settings)
    finish(write_questions(settings, checkpoint, out, count=count, max_proposals=max_proposals, console=Console()))


@command("collect", reads=f"{ROLLOUTS} answerer.* reward.* judge.* evaluation.path run.max_invalid", in_project=True)
def collect(
    out: GrowingFile,
    run_dir: RunDir = None,
    index: Index = None,
    questions: Questions = None,
    model: Model = None,
    attempts: Annotated[int, typer.Option(min=1, help="Number of rollouts of each question.")] = 4,
    min_reward: Annotated[float, typer.Option(help="Lowest reward of a rollout that is kept.")] = 1.0,
    per_question: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of demonstrations of a question. Default: all.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of questions, from the first.")] = None,
    seed: Seed = None,
) -> None:
    """Let a policy, or the model of [answerer], answer questions, and keep right answers as demonstrations for `evoseek
    sft`.

    To let a model at an OpenAI-compatible endpoint answer, use --set answerer.base_url=URL and --set
    answerer.model=NAME.
    """
    from evoseek.cli.settings import answering_run, check_evaluation, named_answerer

    options = {"search.index": index, "evaluation.path": questions, "run.seed": seed}
    given, run_dir = named_answerer(options, run_dir=run_dir, model=model)
    check_evaluation(given.read(), search=True)
    plan, console = f"Let {answerer_name(given, run_dir)} answer each question {attempts} times; write {out}", Console()
    run = answering_run(given, run_dir, plan, console)
    with end_on_interrupt():
        from evoseek.curation.collecting import CollectionLimits, collect_demonstrations

    limits = CollectionLimits(attempts, min_reward, per_question)
    with run.context() as context:
        finish(collect_demonstrations(context, out, limits, limit=limit, console=console))
