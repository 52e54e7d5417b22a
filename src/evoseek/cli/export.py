"""`evoseek export`: a trained policy as a plain model directory, for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from evoseek.cli.shared import stop_if_dry
from evoseek.errors import ConfigError, PolicyError, RunError
from evoseek.files import check_new
from evoseek.report.printable import say
from evoseek.training.interrupt import end_on_interrupt


def export(
    source: Annotated[str, typer.Argument(help="A run, whose last checkpoint is used, or a policy: see --model.")],
    directory: Annotated[Path, typer.Argument(help="Directory for the plain model.")],
) -> None:
    """Write a policy as a plain model directory, with an adapter merged into its base."""
    from evoseek.cli.settings import check_model

    check_new(directory)
    check_model(source, setting="The run or policy")
    stop_if_dry([f"Write the policy of {source} as a plain model to {directory}"])
    write_plain(source, directory, console=Console())


def write_plain(run_or_policy: str, directory: Path, *, console: Console) -> None:
    """Write the policy of a run's last checkpoint, or of a directory or name, as a plain full model in float32.

    An adapter is merged into its base. Raises ConfigError if the directory is not empty or cannot be made, RunError or
    CheckpointError if the run has no whole checkpoint, PolicyError if there is no such policy.
    """
    with end_on_interrupt():
        from evoseek.learner.checkpoint import latest_checkpoint
        from evoseek.policy.load import export_policy, load_policy

    check_new(directory)
    checkpoint = latest_checkpoint(Path(run_or_policy))
    if checkpoint is None and (Path(run_or_policy) / "lock").is_file():
        raise RunError(
            f"{run_or_policy} is a run that has saved no checkpoint yet, so there is nothing to export. Train on until "
            "the first one (every run.checkpoint_every steps)."
        )
    try:
        policy = load_policy(str(checkpoint.part_directory("policy")) if checkpoint else run_or_policy)
    except PolicyError as error:
        if run_or_policy == "tiny" or Path(run_or_policy).expanduser().exists():
            raise
        raise PolicyError(
            f"There is no run and no directory {run_or_policy}; check the path. Taken as a policy's name: {error}"
        ) from error
    try:
        export_policy(policy, directory)
    except OSError as error:
        raise ConfigError(
            f"{directory} cannot be written ({error.strerror or error}), and was not. Make room or give access, or "
            "choose another folder."
        ) from error
    whence = f"step {checkpoint.step} of {run_or_policy}" if checkpoint else run_or_policy
    what = "its adapter merged into the base" if policy.adapter else "as it is"
    say(console, f"Wrote the policy of {whence} to {directory}, {what}.")
