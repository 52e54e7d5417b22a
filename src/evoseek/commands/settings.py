"""What a command works with: the last checkpoint of a run with its settings, or settings alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from evoseek.config import Config, load_config
from evoseek.errors import ConfigError, RunError
from evoseek.learner.checkpoint import Checkpoint, latest_checkpoint
from evoseek.runs import RunDirectory


def load_settings(
    run_dir: Path | None,
    config_files: Sequence[Path],
    *,
    options: Mapping[str, object],
    sets: Sequence[str],
    system: str | None = None,
    fallback: str = "search-r1",
) -> tuple[Config, Checkpoint | None]:
    """The config of a run, with options over it, and its last checkpoint; without a run what config files and options
    say, and None. `system` and `fallback` are those of `load_config`.

    Raises ConfigError if a run and a model of its own are both given, RunError if the directory holds no run or no
    checkpoint yet.
    """
    if run_dir is None:
        return load_config(config_files, system=system, fallback=fallback, options=options, sets=sets), None
    run = RunDirectory(run_dir)
    checkpoint = latest_checkpoint(run_dir)
    if checkpoint is None or not run.config.is_file():
        raise RunError(
            f"{run_dir} holds no checkpoint to use. Give the directory of a run that `evoseek train` or `evoseek demo` "
            "made and that has saved one (every run.checkpoint_every steps), or give --model instead."
        )
    config = load_config(run.config, system=system, options=options, sets=sets)
    own_model = load_config(run.config).policy.model
    if config_files or config.policy.model != own_model:
        raise ConfigError(
            f"--run-dir brings its own config and model, {own_model}. Give either --run-dir, or --model and --config, "
            "not both."
        )
    return config, checkpoint
