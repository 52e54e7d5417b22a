"""Training a system, and drawing what came of it."""

from __future__ import annotations

import asyncio
import math
from contextlib import ExitStack
from functools import partial

from rich.console import Console

from evoseek.errors import ConfigError
from evoseek.learner.distributed import ALONE, Ranks, joined_ranks
from evoseek.report.plots import plot_curves
from evoseek.report.printable import say
from evoseek.report.progress import STOPPING, TrainingProgress
from evoseek.run import training_loop
from evoseek.runs import RunDirectory
from evoseek.training.context import Objects
from evoseek.training.interrupt import stop_on_interrupt
from evoseek.training.settings import TrainingSettings


def train(
    settings: TrainingSettings,
    run: RunDirectory,
    *,
    console: Console,
    max_seconds: float = math.inf,
    objects: Objects | None = None,
) -> bool:
    """Train, or resume a run whose lock the caller holds, for about `max_seconds` of steps at most.

    Returns False if Ctrl-C ended it early. Raises whatever training raises.
    """
    return _train(settings, run, ALONE, console, max_seconds, objects)


def train_together(settings: TrainingSettings, run: RunDirectory, *, console: Console) -> bool:
    """Train in each of the processes that torchrun started, or in the only one, and draw the curves.

    They train one policy. The first of them holds the run's lock, writes and speaks. When one fails, all raise.
    """
    with joined_ranks(settings.policy.device) as ranks, ExitStack() as held:
        with ranks.setting_up():
            if ranks.is_first:
                held.enter_context(run.locked())
        own_console = console if ranks.is_first else Console(quiet=True)
        finished = _train(settings, run, ranks, own_console, math.inf, None)
        if ranks.is_first:
            draw(run, console)
        return finished


def _train(
    settings: TrainingSettings,
    run: RunDirectory,
    ranks: Ranks,
    console: Console,
    max_seconds: float,
    objects: Objects | None,
) -> bool:
    with (
        stop_on_interrupt(lambda: say(console, STOPPING)) as interrupted,
        TrainingProgress(console, max_seconds=max_seconds) as progress,
        ExitStack() as held,
    ):
        with ranks.setting_up():
            made = training_loop(settings, run, notify=partial(say, console), ranks=ranks, objects=objects)
            loop = held.enter_context(made)
        if loop.start:
            say(console, f"Resuming {run.path} after step {loop.start}.")
        loop.progress = progress
        loop.should_stop = interrupted
        loop.max_seconds = max_seconds
        step = asyncio.run(loop.run())
    if ranks.any(interrupted()):
        say(console, f"Stopped after step {step}. The same command resumes it.")
        return False
    say(console, f"Trained {run.path} to step {step}.")
    return True


def draw(run: RunDirectory, console: Console) -> None:
    """Draw the run's curves; without matplotlib, say how to get it."""
    try:
        say(console, f"Curves: {plot_curves(run)}")
    except ConfigError as error:
        say(console, str(error))
