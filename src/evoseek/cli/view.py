"""`evoseek view` and `status`: a run's trajectories and curves, as a page or in the terminal, and its progress."""

from __future__ import annotations

import json as jsons
import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from evoseek.cli.options import Json, command, named_run, project, stop_if_dry
from evoseek.errors import ConfigError
from evoseek.text.printable import say


@command("view", in_project=True)
def view(
    run: Annotated[
        Path | None,
        typer.Argument(help="Directory of a run, or a folder of `evoseek eval --out`. Default: the project's run."),
    ] = None,
    other: Annotated[
        str | None, typer.Argument(help="Another run to show beside it; with --terminal, the id of a trajectory.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Page to write. Default: view.html in the run.")] = None,
    open: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    terminal: Annotated[bool, typer.Option("--terminal", help="List them in the terminal instead.")] = False,
    last: Annotated[int, typer.Option(min=1, help="Maximum number of trajectories in the terminal, the latest.")] = 50,
) -> None:
    """Write a page with the curves and trajectories of a run, or the scores and trajectories of an evaluation, or two
    side by side. It opens without a server.

    The page loads nothing from elsewhere. With --terminal, list the trajectories or show one.
    """
    from evoseek.report.view.source import RunSource

    run = run or named_run()
    if terminal:
        if out is not None or open:
            raise ConfigError("--out and --open concern the page, which --terminal does not write. Leave them out.")
        from evoseek.report.view.terminal import list_rollouts, show_rollout

        source, console = RunSource.open(run), Console()
        if other is not None:
            show_rollout(console, source, other)
        else:
            list_rollouts(console, source, last)
        return
    stop_if_dry([f"Write the page of {run}{f' and {other}' if other else ''} to {out or run / 'view.html'}"])
    from evoseek.report.view.html import data_folder, make_page

    path, console = out or run / "view.html", Console()
    page = make_page([RunSource.open(one) for one in (run, *([Path(other)] if other else []))], data_folder(path).name)
    page.write(path)
    beside = f" (with its data in {data_folder(path)}/)" if page.data else ""
    say(console, f"Wrote {path}{beside}. Open it in a browser; nothing else is needed.")
    if open and not webbrowser.open(path.absolute().as_uri()):
        say(console, "No browser could be started here. Open the file yourself.")


@command("status", in_project=True, only_reads=True)
def status(
    run: Annotated[Path | None, typer.Argument(help="Directory of a run. Default: the project's run.")] = None,
    json: Json = False,
) -> None:
    """Show a run's progress: step, scores, time left, warnings, and what comes next. Nothing is loaded or written.

    Example: evoseek status runs/mine
    """
    from evoseek.assembly.sources import allow_project
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
