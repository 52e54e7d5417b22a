"""`evoseek prompt`: shows a prompt exactly as the model is given it."""

from __future__ import annotations

from dataclasses import asdict
from json import dumps
from typing import Annotated, Literal

import typer
from rich.console import Console

from evoseek.cli.options import ROLLOUTS, Json, Model, command
from evoseek.text.printable import say
from evoseek.training.interrupt import end_on_interrupt


@command("prompt", reads=f"{ROLLOUTS} ssp.* selfplay.* proposer.*", in_project=True, only_reads=True)
def prompt(
    system: Annotated[
        str | None, typer.Argument(help="A system; default: that of --config, or search-r1. May be left out.")
    ] = None,
    question: Annotated[
        str | None,
        typer.Argument(help="The question; for a proposer a passage, or an answer (ssp). Default: an example."),
    ] = None,
    role: Annotated[
        Literal["solver", "closed-book", "reader", "proposer"], typer.Option(help="Whose prompt.")
    ] = "solver",
    model: Model = None,
    json: Json = False,
) -> None:
    """Show what a model is given to read: text with special tokens, number of tokens, and the file to change.

    Only the model's tokenizer is loaded.
    """
    from evoseek.cli.settings import chosen_for_model, given_settings

    if question is None and system is not None and " " in system.strip():  # no name of a system has a space
        system, question = None, system
    given = given_settings({"policy.model": model}, system=system)
    settings = chosen_for_model(given.read(), console=Console(quiet=True))
    with end_on_interrupt():
        from evoseek.agent.prompt import rendered

    shown, console = rendered(settings, role, question or ""), Console()
    if json:
        print(dumps(asdict(shown), ensure_ascii=False))
        return
    words = (
        f"The words are those of {shown.template}. To replace them, copy its folder, edit the file in the copy, "
        "and set policy.prompts to the copy."
        if shown.template
        else "The words are those of your environment."
    )
    say(console, f"{shown.model} as {shown.role} of {shown.system}: {shown.tokens} tokens, format {shown.format}.")
    say(console, f"{words}\n")
    say(console, shown.text)
