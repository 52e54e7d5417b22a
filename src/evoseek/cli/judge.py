"""`evoseek judge`: the commands about the model that judges answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from evoseek.cli.options import ConfigFiles, Sets, new_group, stop_if_dry
from evoseek.training.interrupt import end_on_interrupt

judge = new_group("The model that says whether an answer is right.")


@judge.command()
def check(
    cases: Annotated[Path, typer.Argument(help="JSON lines: question, golden_answers, answer, correct (true, false).")],
    config: ConfigFiles = None,
    set_: Sets = None,
) -> None:
    """Ask the judge of the settings (judge.model) about labelled answers, and report how far it agrees."""
    from evoseek.cli.settings import given_settings
    from evoseek.corpus.questions import load_judged_answers

    given = given_settings("judge check", None, config or (), options={}, sets=set_ or ())
    labelled = load_judged_answers(cases)
    given.read().judge.check("judge")
    with end_on_interrupt():
        from evoseek.report.judging import check_judge
        from evoseek.training.context import Context

    stop_if_dry([f"Ask the judge about {len(labelled)} answers of {cases}"], given.read())
    with Context(given.read()) as context:
        check_judge(*context.chat("judge"), labelled, console=Console())
