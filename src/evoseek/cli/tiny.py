"""`evoseek tiny`: the commands about the tiny policy."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from evoseek.cli.options import FixedSeed, finish, new_group
from evoseek.cli.shared import stop_if_dry
from evoseek.training.interrupt import end_on_interrupt

tiny = new_group("The tiny policy that comes with the package.")


class VariantChoice(StrEnum):
    """Variants of the tiny policy."""

    default = "default"
    reader = "reader"
    weak = "weak"
    free = "free"
    web = "web"


@tiny.command()
def build(
    directory: Annotated[Path, typer.Argument(help="Directory for the policy.")],
    work: Annotated[Path, typer.Option(help="Checkpoints; the same command resumes.")] = Path("runs/tiny"),
    variant: Annotated[
        VariantChoice,
        typer.Option(
            help="default, reader (reads better), weak (proposes badly), free (may choose the number of hops) or web "
            "(browses)."
        ),
    ] = VariantChoice.default,
    steps: Annotated[int | None, typer.Option(min=1, help="Optimizer steps.")] = None,
    seed: FixedSeed = 0,
) -> None:
    """Train the tiny policy from scratch, on worlds of the pretraining split."""
    stop_if_dry([f"Train the tiny policy ({variant.value}) from scratch into {directory}; checkpoints in {work}"])
    with end_on_interrupt():
        from evoseek.tiny.variant import build_variant

    finish(build_variant(directory, work, variant=variant.value, steps=steps, seed=seed, console=Console()))
