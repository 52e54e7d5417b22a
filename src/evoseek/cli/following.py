"""Settings that were not given follow the model, and it is said which."""

from __future__ import annotations

from rich.console import Console

from evoseek.policy.machine import find_machine
from evoseek.report.printable import say
from evoseek.runs import RunDirectory
from evoseek.training.model_defaults import follow_model
from evoseek.training.settings import TrainingSettings


def following(settings: TrainingSettings, *, console: Console, run: RunDirectory | None = None) -> TrainingSettings:
    """The settings with what was not given chosen for its model; on a run that has begun, as it was chosen then."""
    saved = run.read_config() if run is not None and run.config.is_file() else None
    settings, words = follow_model(settings, find_machine, saved)
    if words:
        say(console, words)
    return settings
