"""`evoseek train`: begins a run from a command line, or resumes one from its directory."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from evoseek.cli.options import ConfigFiles, Model, Questions, Seed, Sets, finish
from evoseek.cli.shared import is_dry
from evoseek.settings import is_given
from evoseek.training.interrupt import end_on_interrupt

Corpus = Annotated[
    str | None,
    typer.Option(
        "--index",
        "--corpus",
        help="Directory of an index made by `evoseek index`; in self-play, questions are written from its passages.",
    ),
]

Processes = Annotated[
    int, typer.Option(min=1, help="Number of processes that train together on this machine; on a CPU, one a core.")
]


def train(
    system: Annotated[
        str | None,
        typer.Argument(
            help="search-r1 or dspo (from questions), zerosearch (with a simulated engine), deepresearcher (on the "
            "web), dr-zero or ssp (self-play, from a corpus alone), sft (from demonstrations: `evoseek sft`), or "
            "package.module:Name of one of your own. "
            "Default: the system of --config, or search-r1."
        ),
    ] = None,
    run_dir: Annotated[
        Path | None,
        typer.Option(help="Directory of the run. If given alone, the run is resumed. Default: the project's."),
    ] = None,
    index: Corpus = None,
    questions: Questions = None,
    model: Model = None,
    steps: Annotated[int | None, typer.Option(help="Total number of steps.")] = None,
    seed: Seed = None,
    config: ConfigFiles = None,
    processes: Processes = 1,
    set_: Sets = None,
) -> None:
    """Train a policy. Ctrl-C finishes the step and saves; --run-dir alone resumes the run, with its own settings.

    In a project (`evoseek init`), system, model, index and run are those of evoseek.toml.

    Examples:

      evoseek train dr-zero --corpus my-index --model MODEL --config dr-zero/3b --run-dir runs/self

      evoseek train search-r1 --index my-index --questions questions.jsonl --run-dir runs/mine
    """
    options = {
        "search.index": index,
        "questions.path": questions,
        "policy.model": model,
        "run.steps": steps,
        "run.seed": seed,
    }
    begin_or_resume(run_dir, system, options, config, set_, processes)


def begin_or_resume(
    given_dir: Path | None,
    system: str | None,
    options: Mapping[str, object],
    config: Sequence[Path] | None,
    set_: Sequence[str] | None,
    processes: int,
) -> None:
    """Train with the settings of a command line, or say what that would be; `options` are those that its own options
    gave, by dotted names. Without a directory the run is the project's."""
    from evoseek.cli.settings import training_run, training_settings

    run_dir, is_own = training_run(given_dir), given_dir is None
    given = training_settings(
        run_dir, config or (), options=options, sets=set_ or (), system=system, is_of_project=is_own
    )
    if is_dry():
        from evoseek.cli.dry_run import say_plan

        say_plan(given, run_dir, processes)
    if processes > 1 and "RANK" not in os.environ:
        with end_on_interrupt():
            from evoseek.learner.distributed import run_together
            from evoseek.policy.machine import find_machine, too_many

        settings = given.read()
        device = find_machine(settings.policy.device if is_given(settings, "policy.device") else None).device
        if words := too_many(processes, device):
            warnings.warn(words, stacklevel=1)
        raise typer.Exit(run_together(processes, sys.argv[1:]))
    with end_on_interrupt():
        from evoseek.cli.following import following
        from evoseek.runs import RunDirectory
        from evoseek.train import train_together

    run, quiet = RunDirectory(run_dir, given.of_project), os.environ.get("RANK", "0") != "0"
    settings = following(given.read(), run=run, console=Console(quiet=quiet))
    finish(train_together(settings, run, console=Console()))
