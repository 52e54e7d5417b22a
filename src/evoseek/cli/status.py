"""`evoseek status`: where a run stands, in one screen."""

from __future__ import annotations

import json as jsons
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from evoseek.cli.options import Json, named_run, project
from evoseek.report.printable import say
from evoseek.training.given import allow_project


def status(
    run: Annotated[Path | None, typer.Argument(help="Directory of a run. Default: the project's run.")] = None,
    json: Json = False,
) -> None:
    """Show where a run stands: step, scores, time left, warnings, and what comes next. Nothing is loaded or written.

    Example: evoseek status runs/mine
    """
    from evoseek.report.status import status as status_of

    allow_project(project())
    lines = status_of(run or named_run())
    if json:
        found: dict[str, list[str]] = {}
        for about, words in lines:
            found.setdefault(about.lower(), []).append(words)
        print(jsons.dumps(found, ensure_ascii=False))
        return
    width = max(len(about) for about, _ in lines)
    for about, words in lines:
        say(Console(), f"{about:{width}}  {words}")
