"""Training in one process or several, and drawing what came of it."""

from __future__ import annotations

from contextlib import ExitStack

from rich.console import Console

from evoseek.errors import ConfigError
from evoseek.learner.distributed import joined_ranks
from evoseek.report.plots import plot_curves
from evoseek.report.printable import say
from evoseek.run import train
from evoseek.runs import RunDirectory
from evoseek.training.settings import TrainingSettings


def train_together(settings: TrainingSettings, run: RunDirectory, *, console: Console) -> bool:
    """Train in each of the processes that torchrun started, or in the only one, and draw the curves.

    They train one policy. The first process holds the run's lock, writes and prints. If one fails, all raise. Returns
    False if Ctrl-C ended it early.
    """
    with joined_ranks(settings.policy.device) as ranks, ExitStack() as held:
        with ranks.setting_up():
            if ranks.is_first:
                held.enter_context(run.locked())
        own_console = console if ranks.is_first else Console(quiet=True)
        ended = train(settings, run, console=own_console, ranks=ranks)
        if ranks.is_first:
            draw(run, console)
        return not ended.interrupted


def draw(run: RunDirectory, console: Console) -> None:
    """Draw the run's curves; without matplotlib, say how to get it."""
    try:
        say(console, f"Curves: {plot_curves(run)}")
    except ConfigError as error:
        say(console, str(error))
