"""Options that several commands share, and helpers for them. A command loads what it needs when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evoseek.training.interrupt import INTERRUPTED, end_on_interrupt

if TYPE_CHECKING:
    from evoseek.learner.checkpoint import Checkpoint

RunDir = Annotated[Path | None, typer.Option(help="Directory of a run: its last checkpoint is used.")]
Index = Annotated[str | None, typer.Option(help="Directory of an index made by `evoseek index`.")]
Questions = Annotated[str | None, typer.Option(help="JSON lines, a JSON array or CSV: question, golden_answers.")]
Model = Annotated[
    str | None,
    typer.Option(help="`tiny`, `smollm2-135m`, a directory (also of a run), a GGUF file, or a Hugging Face name."),
]
JudgeModel = Annotated[str | None, typer.Option("--model", help="The model that judges, as in judge.model.")]
ConfigFiles = Annotated[
    list[Path] | None,
    typer.Option("--config", help="A TOML file of settings, or a recipe such as dr-zero/3b; the last one wins."),
]
Sets = Annotated[list[str] | None, typer.Option("--set", help="A setting, such as learner.learning_rate=1e-4.")]
Seed = Annotated[int | None, typer.Option(help="Seed of all random numbers.")]
FixedSeed = Annotated[int, typer.Option("--seed", help="Seed of all random numbers.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as a JSON object, everything else on stderr.")]
GrowingFile = Annotated[Path, typer.Argument(help="The JSONL file to write. The same command resumes it.")]


def new_group(help: str) -> typer.Typer:
    """A group of commands. Help is plain text: as markup, [section] in it would be taken for a style and not shown."""
    return typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=help)


def checkpoint_of(run_dir: Path | None) -> Checkpoint | None:
    """The last checkpoint of a run that has one; None without a run."""
    with end_on_interrupt():
        from evoseek.learner.checkpoint import latest_checkpoint

    return None if run_dir is None else latest_checkpoint(run_dir)


def finish(finished: bool) -> None:
    """End the command with the status of Ctrl-C if that ended its work."""
    if not finished:
        raise typer.Exit(INTERRUPTED)
