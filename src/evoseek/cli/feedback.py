"""`evoseek feedback`: lists and deletes conversations with a verdict, and lists what was asked."""

from __future__ import annotations

from collections.abc import Sequence
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
    from evoseek.questions.asked import AskedLog
    from evoseek.questions.feedback import Feedback


@command("feedback", in_project=True)
def feedback(
    run: Annotated[Path | None, typer.Argument(help="Directory of a run. Default: the project.")] = None,
    delete: Annotated[
        str | None, typer.Option(metavar="N|all", help="Delete the conversation with this number, or all.")
    ] = None,
    asked: Annotated[
        bool, typer.Option("--asked", help="List what was asked, as `evoseek serve agent --log` kept it.")
    ] = False,
    json: Json = False,
) -> None:
    """List the conversations that `evoseek serve agent --feedback` kept with a verdict, or delete some.

    Example: evoseek feedback --delete 3
    """
    from evoseek.questions.asked import ASKED, AskedLog
    from evoseek.questions.feedback import FeedbackFile, numbered

    path, console = run / FEEDBACK if run else feedback_path(None), Console()
    file = FeedbackFile(path)
    verdicts = file.read()
    if asked:
        _list_asked(AskedLog(path.with_name(ASKED)), verdicts, console, json)
    elif delete is not None:
        ids = numbered(verdicts, delete)
        stop_if_dry([f"Delete {len(ids)} of the {len(verdicts)} conversations in {path}"])
        say(console, f"Deleted {file.delete(ids)} of {len(verdicts)} conversations in {path}.")
    elif json:
        print(dumps({"path": str(path), "feedback": [asdict(verdict) for verdict in verdicts]}, ensure_ascii=False))
    else:
        for number, verdict in enumerate(verdicts, 1):
            say(console, _line(number, verdict))
        say(console, f"{len(verdicts)} conversations in {path}.")


def _list_asked(log: AskedLog, verdicts: Sequence[Feedback], console: Console, json: bool) -> None:
    found = log.overview(verdicts)
    if json:
        print(dumps({"path": str(log.path), **found}, ensure_ascii=False))
        return
    for one in reversed(found["questions"]):
        verdict = f", judged {one['verdict']}" if one["verdict"] else ""
        head = f"{one['time']}  {one['key'] or '-'}  {one['outcome']}{verdict}, {one['seconds']:.1f} s"
        texts = f"\n      {one['question']}\n      -> {one['answer'] or '-'}" if one["question"] else ""
        say(console, Text(head + texts))
    counts = ", ".join(f"{count} {name}" for name, count in found["outcomes"].items())
    wrong = found["verdicts"].get("wrong", 0)
    say(console, f"{found['asked']} questions in {log.path}: {counts or 'none'}; {wrong} judged wrong.")


def _line(number: int, feedback: Feedback) -> Text:
    about = {"right answer": feedback.right_answer, "note": feedback.note}
    head = f"{number:>4}  {feedback.time}  {feedback.verdict}\n      "
    lines = [f"\n      {name}: {text}" for name, text in about.items() if text]
    answer = feedback.answer or f"(not found{f'; unsupported: {text}' if (text := feedback.unsupported) else ''})"
    return Text.assemble(head, (feedback.question, "bold"), f"\n      -> {answer}", *lines)
