"""`evoseek ask`: a policy, or another model instead of it, answers a question."""

from __future__ import annotations

from dataclasses import asdict
from json import dumps
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from evoseek.cli.options import ROLLOUTS, Index, Json, Model, RunDir, answerer_name, command
from evoseek.errors import ConfigError, EvoseekError
from evoseek.text.printable import say
from evoseek.training.interrupt import end_on_interrupt

if TYPE_CHECKING:
    from evoseek.assembly.settings import TrainingSettings

NO_ANSWER = 1  # the exit status of `ask` if the model gave no answer
Role = Literal["solver", "closed-book", "reader", "proposer"]


@command("ask", reads=f"{ROLLOUTS} answerer.* support.*", in_project=True)
def ask(
    question: Annotated[str, typer.Argument()],
    run_dir: RunDir = None,
    index: Index = None,
    model: Model = None,
    show_prompt: Annotated[
        Role | None,
        typer.Option(
            help="Role whose prompt to print instead of answering; a proposer's prompt is about a passage, or in ssp "
            "about an answer. Loads only the tokenizer."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Ask a policy, or the model of [answerer]; print the answer, its searches and the passages that support it.

    If there is no answer, print the model's output and end with status 1.
    """
    from evoseek.cli.settings import answering_run, answering_settings, check_searched, named_answerer

    if not question.strip():
        raise ConfigError("The question is empty. Give the question's text.")
    given, run_dir = named_answerer({"search.index": index}, run_dir=run_dir, model=model)
    if show_prompt is not None:
        _show_prompt(answering_settings(given, answers=1), show_prompt, question, json=json)
        return
    check_searched(given.read())
    plan = f"Ask {answerer_name(given, run_dir)}: {question}"
    answered = answering_run(given, run_dir, plan, Console(stderr=json)).ask(question)
    if json:
        print(dumps(answered.json, ensure_ascii=False))
    else:
        say(Console(), answered.text)
    if failure := answered.trajectory.failure:
        raise EvoseekError(f"The question could not be answered: {failure}")
    if answered.answer is None:
        raise typer.Exit(NO_ANSWER)


def _show_prompt(settings: TrainingSettings, role: Role, text: str, *, json: bool) -> None:
    with end_on_interrupt():
        from evoseek.agent.answer import uses_chat_model
        from evoseek.agent.prompt import messages_shown, rendered

    called = role in ("solver", "closed-book") and uses_chat_model(settings)
    shown, console = (messages_shown if called else rendered)(settings, role, text), Console()
    if json:
        print(dumps(asdict(shown), ensure_ascii=False))
        return
    words = (
        f"The words come from {shown.template}. To replace them, copy its folder, edit the file in the copy, and "
        "set policy.prompts to the copy."
        if shown.template
        else "The words come from your environment."
    )
    size = "sent as messages" if called else f"{shown.tokens} tokens, format {shown.format}"
    say(console, f"{shown.model} as {shown.role} of {shown.system}: {size}.")
    say(console, f"{words}\n")
    say(console, shown.text)
