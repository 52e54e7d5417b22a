"""`evoseek simulator`: the commands that make and check a language model that plays the search engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.console import Console

from evoseek.cli.options import (
    JUDGE,
    GrowingFile,
    Index,
    JudgeModel,
    Model,
    Questions,
    RunDir,
    Seed,
    answerer_name,
    command,
    finish,
    new_group,
    stop_if_dry,
)
from evoseek.errors import ConfigError
from evoseek.training.interrupt import end_on_interrupt

if TYPE_CHECKING:
    from evoseek.systems.zerosearch.system import ZeroSearch

simulator = new_group("Make a language model that plays the search engine (zerosearch).")
Searches = Annotated[Path, typer.Argument(help="Searches: a JSONL file that `simulator collect` wrote.")]
WorldCard = Annotated[
    Path | None, typer.Option(help="world.json of the generated world of the searches, whose facts then label them.")
]


@simulator.command("collect")
@command("simulator collect", reads="policy.* lora.* sampler.* search.* questions.path rollout.* run.seed run.system")
def collect_searches(
    out: GrowingFile,
    run_dir: RunDir = None,
    index: Index = None,
    questions: Questions = None,
    model: Model = None,
    pages: Annotated[int, typer.Option(min=1, help="Number of recorded pages of results for each query.")] = 1,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of questions, from the first.")] = None,
    seed: Seed = None,
) -> None:
    """Let a policy answer questions with a real index, and record its search results (search.top_k per page)."""
    from evoseek.cli.settings import given_settings
    from evoseek.search.lexical import check_index

    options = {"search.index": index, "questions.path": questions, "policy.model": model, "run.seed": seed}
    given = given_settings(options, run_dir, fallback="zerosearch")
    settings = given.read()
    if not settings.search.reads_index:
        raise ConfigError(
            f"search.name is {settings.search.name}, but results are collected from an index. Set search.name to auto."
        )
    check_index(settings.search.index, setting="search.index", engine=settings.search)
    with end_on_interrupt():
        from evoseek.run import Run
        from evoseek.systems.zerosearch.searches import collect_searches as collect

    stop_if_dry([f"Record the searches of {answerer_name(given, run_dir)} in {out}"], settings)
    with Run(directory=run_dir, settings=settings).context() as context:
        finish(collect(context, out, pages=pages, limit=limit, console=Console()))


@simulator.command("label")
@command("simulator label", reads=JUDGE)
def label_searches(
    searches: Searches,
    out: GrowingFile,
    world: WorldCard = None,
    model: JudgeModel = None,
    seed: Seed = None,
) -> None:
    """Label searches useful or noisy, by a judge or by --world: do their results answer the query?"""
    from evoseek.cli.settings import given_settings, working

    if world is not None and model is not None:
        raise ConfigError("--model names a judge, but --world labels by the facts of the world. Give one of them.")
    given = given_settings({"judge.model": model, "run.seed": seed}, fallback="zerosearch")
    if world is None:
        given.read().judge.check("judge")
    with end_on_interrupt():
        from evoseek.systems.zerosearch.searches import label_searches as label

    plan = f"Label the searches of {searches} by {world or given.read().judge.model}; write {out}"
    with working(given, plan) as context:
        finish(label(context, searches, out, world=world, console=Console()))


@simulator.command("tune")
@command("simulator tune", reads="policy.* lora.* learner.* simulator.* search.top_k run.seed")
def tune_simulator(
    searches: Searches,
    directory: Annotated[Path, typer.Argument(help="Directory for the tuned model.")],
    work: Annotated[Path, typer.Option(help="Directory for checkpoints; the same command resumes.")] = Path(
        "runs/simulator"
    ),
    model: Model = None,
    steps: Annotated[int, typer.Option(min=1, help="Number of optimizer steps.")] = 300,
    learning_rate: Annotated[
        float | None, typer.Option(help="Initial learning rate; it falls to 0 at the last step.")
    ] = None,
    tokens_per_step: Annotated[int, typer.Option(min=1, help="Number of tokens per step, prompts included.")] = 16_384,
    seed: Seed = None,
) -> None:
    """Tune a model (policy.model, with lora.rank an adapter of it) to write the results of labelled searches."""
    from evoseek.cli.settings import given_settings

    options = {"policy.model": model, "learner.learning_rate": learning_rate, "run.seed": seed}
    given = given_settings(options, system="zerosearch")
    with end_on_interrupt():
        from evoseek.systems.zerosearch.tuning import tune_simulator as tune

    settings, length = cast("ZeroSearch.Settings", given.read()), {"steps": steps, "tokens_per_step": tokens_per_step}
    plan = f"Tune {settings.policy.model} for {steps} steps on {searches}; write {directory}, checkpoints in {work}"
    stop_if_dry([plan], settings)
    finish(tune(settings, searches, directory, work, **length, console=Console()))


@simulator.command("check")
@command("simulator check", reads="policy.* simulator.* search.top_k run.seed")
def check_simulator(
    searches: Searches,
    model: Annotated[str | None, typer.Option(help="Simulator, as in simulator.model.")] = None,
    world: WorldCard = None,
    count: Annotated[int, typer.Option(min=2, help="Number of queries.")] = 500,
    output: Annotated[Path | None, typer.Option(help="JSON file for the numbers.")] = None,
    seed: Seed = None,
) -> None:
    """Ask a simulator for useful and noisy results of held-out searches; compare them with the real engine's."""
    from evoseek.cli.settings import given_settings, working
    from evoseek.storage.files import check_new_file

    given = given_settings({"simulator.model": model, "run.seed": seed}, system="zerosearch")
    if output is not None:
        check_new_file(output)
    with end_on_interrupt():
        from evoseek.systems.zerosearch.check import check
        from evoseek.systems.zerosearch.engine import simulated_engine

    settings = cast("ZeroSearch.Settings", given.read())
    plan = f"Ask {model or 'the simulator'} for the results of {count} queries of {searches}; write {output}"
    with working(given, plan) as context:
        engine = simulated_engine(context.settings)
        check(settings, engine, searches, world=world, count=count, output=output, console=Console())
