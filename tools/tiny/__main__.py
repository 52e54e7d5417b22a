"""`python -m tools.tiny DIRECTORY`: train a tiny policy from scratch, on worlds of the pretraining split."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from tools.tiny.variant import build_variant


def main(
    directory: Annotated[Path, typer.Argument(help="Directory for the policy.")],
    work: Annotated[Path, typer.Option(help="Checkpoints; the same command resumes.")] = Path("runs/tiny"),
    variant: Annotated[
        Literal["default", "reader", "weak", "free", "web"],
        typer.Option(
            help="default, reader (reads better), weak (proposes badly), free (may choose the number of hops) or web "
            "(browses)."
        ),
    ] = "default",
    steps: Annotated[int | None, typer.Option(min=1, help="Optimizer steps.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0,
) -> None:
    """Train a tiny policy from scratch. Interrupted by Ctrl-C, the same command resumes."""
    finished = build_variant(directory, work, variant=variant, steps=steps, seed=seed, console=Console())
    raise typer.Exit(0 if finished else 130)


if __name__ == "__main__":
    typer.run(main)
