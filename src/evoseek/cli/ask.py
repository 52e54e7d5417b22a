"""`evoseek ask`: a policy, or another model instead of it, answers a question."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from evoseek.cli.options import ConfigFiles, Index, Json, Model, RunDir, Sets, checkpoint_of
from evoseek.cli.shared import stop_if_dry, who_answers
from evoseek.training.interrupt import end_on_interrupt

NO_ANSWER = 1  # the exit status of `ask` if the model gave no answer


def ask(
    question: Annotated[str, typer.Argument()],
    run_dir: RunDir = None,
    index: Index = None,
    model: Model = None,
    json: Json = False,
    config: ConfigFiles = None,
    set_: Sets = None,
) -> None:
    """Ask a policy, or the model of [answerer]: prints the answer, the searches made and the passages it rests on.

    If there is no answer, prints the model's output and ends with status 1.
    """
    from evoseek.cli.settings import check_asking, given_settings, run_of_project

    run_dir = run_of_project(run_dir, model, config)
    options = {"search.index": index, "policy.model": model}
    given = given_settings("ask", run_dir, config or (), options=options, sets=set_ or ())
    check_asking(given.read(), question, model=model)
    stop_if_dry([f"Ask {who_answers(given, run_dir)}: {question}"], given.read())
    with end_on_interrupt():
        from evoseek.cli.following import following
        from evoseek.jobs.ask import ask as ask_model
        from evoseek.jobs.chat_roller import uses_chat_model

    settings = given.read()
    if not uses_chat_model(settings):
        settings = following(settings, console=Console(stderr=True))
    if not ask_model(settings, checkpoint_of(run_dir), question, console=Console(stderr=json), as_json=json):
        raise typer.Exit(NO_ANSWER)
