"""Training a system, and drawing what came of it."""

from __future__ import annotations

import asyncio
import math
from functools import partial

from rich.console import Console

from evoseek.assemble import search_r1_loop
from evoseek.config import Config
from evoseek.errors import ConfigError
from evoseek.report.plots import plot_curves
from evoseek.report.printable import say
from evoseek.report.progress import STOPPING, TrainingProgress
from evoseek.runs import RunDirectory
from evoseek.systems.interrupt import stop_on_interrupt

SYSTEMS = ("search-r1",)


def train(
    system: str,
    config: Config,
    run: RunDirectory,
    *,
    console: Console,
    max_seconds: float = math.inf,
) -> bool:
    """Train, or go on with a run whose lock the caller holds, for about `max_seconds` of steps at most.

    Returns False if Ctrl-C ended it early. Raises ConfigError for an unknown system and whatever training raises.
    """
    if system not in SYSTEMS:
        raise ConfigError(f"There is no system {system!r}. The systems are: {', '.join(SYSTEMS)}.")

    with (
        stop_on_interrupt(lambda: say(console, STOPPING)) as interrupted,
        TrainingProgress(console, max_seconds=max_seconds) as progress,
    ):
        loop = search_r1_loop(config, run, notify=partial(say, console))
        if loop.start:
            say(console, f"Resuming {run.path} after step {loop.start}.")
        loop.progress = progress
        loop.should_stop = interrupted
        loop.max_seconds = max_seconds
        step = asyncio.run(loop.run())
    if interrupted():
        say(console, f"Stopped after step {step}. The same command goes on from there.")
        return False
    say(console, f"Trained {run.path} to step {step}.")
    return True


def draw(run: RunDirectory, console: Console) -> None:
    """Draw the run's curves; without matplotlib, say how to get it."""
    try:
        say(console, f"Curves: {plot_curves(run)}")
    except ConfigError as error:
        say(console, str(error))
