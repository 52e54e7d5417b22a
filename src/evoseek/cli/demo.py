"""`evoseek demo`."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from evoseek.cli.options import FixedSeed, finish, stop_if_dry
from evoseek.errors import ConfigError
from evoseek.training.interrupt import end_on_interrupt


def demo(
    run_dir: Annotated[
        Path | None, typer.Option(help="Directory for data, checkpoints and results. Default: demo, or demo-real.")
    ] = None,
    real: Annotated[
        bool,
        typer.Option(
            "--real", help="A real model on real text instead (`make demo-real` installs what it needs; an hour)."
        ),
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            help="With --real: a folder with documents (corpus.jsonl) and, for the score, labelled questions "
            "(dev.jsonl). Default: the manual of Python's standard library."
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="With --real: a model. Default: smollm2-135m, SmolLM2-135M-Instruct.")
    ] = None,
    seed: FixedSeed = 0,
    processes: Annotated[
        int | None,
        typer.Option(min=1, help="Number of processes that train together. Default: 2, if there are 2 cores."),
    ] = None,
    max_minutes: Annotated[
        float | None,
        typer.Option(help="Minutes of training, above 0. Default: 5. With --real: of everything, and 60."),
    ] = None,
) -> None:
    """Watch the tiny policy learn to search, on a world made for it, in about five minutes."""
    if not real and (data is not None or model is not None):
        raise ConfigError(
            "--data and --model are for --real: without it the tiny policy is trained, which can read nothing but its "
            "own generated world."
        )
    if real and processes is not None:
        raise ConfigError(
            "--processes is for the demo without --real: a real model is trained by one process on all cores."
        )
    max_minutes = (60.0 if real else 5.0) if max_minutes is None else max_minutes
    if not (max_minutes > 0 and isfinite(max_minutes)):
        raise ConfigError(f"--max-minutes is {max_minutes}; it has to be a number above 0.")
    with end_on_interrupt():
        from evoseek.demo import MODEL, run_demo, run_real_demo

    where = run_dir or Path("demo-real" if real else "demo")
    plan = f"Train {model or MODEL} on real text" if real else "Train the tiny policy on a generated world"
    stop_if_dry([f"{plan} for at most {max_minutes:g} minutes and measure it before and after, in {where}"])
    console = Console()
    if real:
        finish(run_real_demo(where, data, model=model or MODEL, seed=seed, max_minutes=max_minutes, console=console))
    else:
        finish(run_demo(where, seed=seed, max_minutes=max_minutes, processes=processes, console=console))
