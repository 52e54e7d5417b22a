"""Chooses settings that were not given for the model, and reports those of them that the command reads."""

from __future__ import annotations

from rich.console import Console

from evoseek.cli.shared import is_read
from evoseek.policy.machine import find_machine
from evoseek.report.printable import say
from evoseek.runs import RunDirectory
from evoseek.training.model_defaults import follow_model
from evoseek.training.settings import TrainingSettings


def following(
    settings: TrainingSettings, *, console: Console, run: RunDirectory | None = None, answers: int = 0
) -> TrainingSettings:
    """The settings with those that were not given chosen for the model; for a resumed run, as they were chosen at its
    beginning. With `answers` it only answers, so many questions at once."""
    saved = run.read_config() if run is not None and run.is_begun else None
    settings, words = follow_model(settings, find_machine, saved, shown=is_read, answers=answers)
    if words:
        say(console, words)
    return settings
