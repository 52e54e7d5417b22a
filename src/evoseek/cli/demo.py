"""`evoseek demo`."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from evoseek.cli.options import FixedSeed, command, finish, stop_if_dry
from evoseek.errors import ConfigError
from evoseek.training.interrupt import end_on_interrupt


@command("demo")
def demo(
    run_dir: Annotated[Path, typer.Option(help="Directory for data, checkpoints and results.")] = Path("demo"),
    seed: FixedSeed = 0,
    processes: Annotated[
        int | None,
        typer.Option(min=1, help="Number of processes that train together. Default: 2, if there are 2 cores."),
    ] = None,
    max_minutes: Annotated[float, typer.Option(help="Maximum minutes of training, above 0.")] = 5.0,
) -> None:
    """Watch the tiny policy learn to search, on a world made for it, in about five minutes."""
    if not (max_minutes > 0 and isfinite(max_minutes)):
        raise ConfigError(f"--max-minutes is {max_minutes}, but must be above 0. Give a larger number.")
    with end_on_interrupt():
        from evoseek.cli.learning_demo import run_demo

    plan = f"Train the tiny policy on a generated world for at most {max_minutes:g} minutes"
    stop_if_dry([f"{plan} and measure it before and after, in {run_dir}"])
    finish(run_demo(run_dir, seed=seed, max_minutes=max_minutes, processes=processes, console=Console()))
