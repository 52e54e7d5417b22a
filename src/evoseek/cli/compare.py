"""`evoseek compare`: which of several evaluations is better."""

from __future__ import annotations

from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from evoseek.cli.options import Json
from evoseek.report.printable import say


def compare(
    folders: Annotated[list[Path], typer.Argument(help="Folders that `evoseek eval --out` wrote, two or more.")],
    metric: Annotated[str | None, typer.Option(help="Metric to compare by. Default: the declared one.")] = None,
    json: Json = False,
) -> None:
    """Compare evaluations by paired tests over the questions that all of them have.

    Exact McNemar test (0 or 1) or sign flips (graded, or several samples), each difference with its interval; p-values
    are corrected for the number of comparisons, and a warning says if there are too few questions.
    """
    from evoseek.eval.comparison import compare_folders
    from evoseek.report.evaluation import comparison_grids, terminal

    compared, console = compare_folders(folders, metric), Console()
    if json:
        print(dumps([asdict(pair) for pair in compared.pairs], ensure_ascii=False))
        return
    for grid in comparison_grids(compared):
        console.print(terminal(grid))
    for note in compared.notes:
        say(console, note)
