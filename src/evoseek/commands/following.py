"""Settings that were not given follow the model, and it is said which."""

from __future__ import annotations

from rich.console import Console

from evoseek.assemble.model_defaults import follow_model
from evoseek.config import Config
from evoseek.policy.machine import find_machine
from evoseek.report.printable import say
from evoseek.runs import RunDirectory


def following(config: Config, *, console: Console, run: RunDirectory | None = None) -> Config:
    """The config with what was not given chosen for its model; on a run that has begun, as it was chosen then."""
    saved = run.read_config() if run is not None and run.config.is_file() else None
    config, words = follow_model(config, find_machine, saved)
    if words:
        say(console, words)
    return config
