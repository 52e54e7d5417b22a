"""`evoseek sft`, which is `evoseek train sft` with options of its own, and `evoseek collect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from evoseek.cli.options import (
    GrowingFile,
    Index,
    Model,
    Questions,
    RunDir,
    Seed,
    answerer_name,
    finish,
    shared,
    stop_if_dry,
)
from evoseek.cli.train import Processes, begin_or_resume
from evoseek.training.interrupt import end_on_interrupt


def sft(
    run_dir: Annotated[Path, typer.Option(help="Directory of the run. If given alone, the run is resumed.")],
    demonstrations: Annotated[
        str | None, typer.Option(help="JSON lines: question (or passage), and turns with a query or the answer.")
    ] = None,
    index: Index = None,
    model: Model = None,
    questions: Questions = None,
    epochs: Annotated[int | None, typer.Option(help="Number of times that every demonstration is learnt.")] = None,
    seed: Seed = None,
    processes: Processes = 1,
) -> None:
    """Fine-tune a policy on demonstrations, in its own format, before it is trained with rewards.

    --questions are held-out ones, which the policy answers at every evaluation. As in `evoseek train`, Ctrl-C finishes
    the step and saves, and --run-dir alone resumes. `--model RUN_DIR` then begins a training run from the result.
    """
    options = {
        "demonstrations.path": demonstrations,
        "demonstrations.epochs": epochs,
        "search.index": index,
        "policy.model": model,
        "evaluation.path": questions,
        "run.seed": seed,
    }
    given = any(value is not None for value in options.values()) or shared().config or shared().sets
    begin_or_resume(run_dir, "sft" if given else None, options, processes)


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
    """Let a policy, or the model of [answerer], answer questions, and keep what was right as demonstrations for
    `evoseek sft`.

    With --set answerer.base_url=URL and --set answerer.model=NAME a model behind an OpenAI-compatible endpoint answers.
    """
    from evoseek.cli.settings import answering_settings, check_evaluation, given_settings, run_of_project

    run_dir = run_of_project(run_dir, model)
    options = {"search.index": index, "evaluation.path": questions, "policy.model": model, "run.seed": seed}
    given = given_settings(options, run_dir)
    check_evaluation(given.read(), search=True)
    with end_on_interrupt():
        from evoseek.data.collecting import CollectionLimits, collect_demonstrations
        from evoseek.run import Run

    settings, console = answering_settings(given), Console()
    stop_if_dry([f"Let {answerer_name(given, run_dir)} answer each question {attempts} times; write {out}"], settings)
    limits = CollectionLimits(attempts, min_reward, per_question)
    with Run(directory=run_dir, settings=settings, console=console).context() as context:
        finish(collect_demonstrations(context, out, limits, limit=limit, console=console))
