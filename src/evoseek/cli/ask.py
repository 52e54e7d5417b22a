"""`evoseek ask`: a policy, or another model instead of it, answers a question."""

from __future__ import annotations

from json import dumps
from typing import Annotated

import typer
from rich.console import Console

from evoseek.cli.options import ROLLOUTS, Index, Json, Model, RunDir, answerer_name, command, stop_if_dry
from evoseek.errors import ConfigError, EvoseekError
from evoseek.text.printable import say

NO_ANSWER = 1  # the exit status of `ask` if the model gave no answer


@command("ask", reads=f"{ROLLOUTS} answerer.* support.*", in_project=True)
def ask(
    question: Annotated[str, typer.Argument()],
    run_dir: RunDir = None,
    index: Index = None,
    model: Model = None,
    json: Json = False,
) -> None:
    """Ask a policy, or the model of [answerer]: prints the answer, the searches made and the passages it rests on.

    If there is no answer, prints the model's output and ends with status 1.
    """
    from evoseek.cli.settings import answering_settings, check_searched, named_answerer

    if not question.strip():
        raise ConfigError("The question is empty. Give the question's text.")
    given, run_dir = named_answerer({"search.index": index}, run_dir=run_dir, model=model)
    check_searched(given.read())
    stop_if_dry([f"Ask {answerer_name(given, run_dir)}: {question}"], given.read())
    settings = answering_settings(given)
    from evoseek.run import Run

    answered = Run(directory=run_dir, settings=settings, console=Console(stderr=json)).ask(question)
    if json:
        print(dumps(answered.json, ensure_ascii=False))
    else:
        say(Console(), answered.text)
    if failure := answered.trajectory.failure:
        raise EvoseekError(f"The question could not be answered: {failure}")
    if answered.answer is None:
        raise typer.Exit(NO_ANSWER)
