"""`evoseek feedback`: lists and deletes conversations with a verdict."""

from __future__ import annotations

from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from evoseek.cli.options import Json, command, feedback_path, stop_if_dry
from evoseek.config.project import FEEDBACK
from evoseek.text.printable import say

if TYPE_CHECKING:
    from evoseek.questions.feedback import Feedback


@command("feedback", in_project=True)
def feedback(
    run: Annotated[Path | None, typer.Argument(help="Directory of a run. Default: the project.")] = None,
    delete: Annotated[
        str | None, typer.Option(metavar="N|all", help="Delete the conversation with this number, or all.")
    ] = None,
    json: Json = False,
) -> None:
    """List the conversations that `evoseek serve agent --feedback` kept with a verdict, or delete some.

    Example: evoseek feedback --delete 3
    """
    from evoseek.questions.feedback import FeedbackFile, numbered

    path, console = run / FEEDBACK if run else feedback_path(None), Console()
    file = FeedbackFile(path)
    verdicts = file.read()
    if delete is not None:
        ids = numbered(verdicts, delete)
        stop_if_dry([f"Delete {len(ids)} of the {len(verdicts)} conversations in {path}"])
        say(console, f"Deleted {file.delete(ids)} of {len(verdicts)} conversations in {path}.")
    elif json:
        print(dumps({"path": str(path), "feedback": [asdict(verdict) for verdict in verdicts]}, ensure_ascii=False))
    else:
        for number, verdict in enumerate(verdicts, 1):
            say(console, _line(number, verdict))
        say(console, f"{len(verdicts)} conversations in {path}.")


def _line(number: int, feedback: Feedback) -> Text:
    about = {"right answer": feedback.right_answer, "note": feedback.note}
    head = f"{number:>4}  {feedback.time}  {feedback.verdict}\n      "
    lines = [f"\n      {name}: {text}" for name, text in about.items() if text]
    answer = feedback.answer or f"(not found{f'; unsupported: {text}' if (text := feedback.unsupported) else ''})"
    return Text.assemble(head, (feedback.question, "bold"), f"\n      -> {answer}", *lines)
