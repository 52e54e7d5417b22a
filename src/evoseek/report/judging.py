"""Measuring a judge on answers that people have judged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console

from evoseek.corpus.judged_answers import JudgedAnswer
from evoseek.env.prompts import PromptSet
from evoseek.errors import EvoseekError, ToolError
from evoseek.eval.agreement import Agreement
from evoseek.protocols import Chat
from evoseek.report.failures import for_example
from evoseek.report.printable import say
from evoseek.report.progress import CountProgress
from evoseek.report.tables import agreement_table
from evoseek.reward.judge import Judge

SHOWN = 5  # disagreements, and answers without a verdict


@dataclass(frozen=True, slots=True)
class Checked:
    """A judged answer with its verdict, or the failure instead of one."""

    case: JudgedAnswer
    verdict: bool | ToolError


def check_judge(chat: Chat, prompts: PromptSet, cases: Sequence[JudgedAnswer], *, console: Console) -> None:
    """Ask a judge about every answer and print how it agrees with the labels, and where it does not.

    Raises EvoseekError if there is not one verdict.
    """
    with CountProgress(console, "answers") as progress:
        checked = asyncio.run(_check_all(Judge(chat, prompts), cases, progress))
    pairs = ((one.case.correct, one.verdict if isinstance(one.verdict, bool) else None) for one in checked)
    console.print(agreement_table(f"{chat.name} as a judge, 95 % intervals", Agreement.of(pairs)))
    _show_disagreements(checked, console)
    _show_failures(checked, console)


async def _check_all(
    judge: Judge, cases: Sequence[JudgedAnswer], progress: Callable[[int, int], None]
) -> list[Checked]:
    """All of them concurrently: the chat bounds the number of calls at a time."""
    done = 0

    async def check(case: JudgedAnswer) -> Checked:
        nonlocal done
        try:
            verdict = await judge.verdict(case.question, case.answer, key=f"check/{case.line}/judge")
        except ToolError as error:
            verdict = error
        done += 1
        progress(done, len(cases))
        return Checked(case, verdict)

    return await asyncio.gather(*map(check, cases))


def _show_disagreements(checked: Sequence[Checked], console: Console) -> None:
    wrong = [one for one in checked if isinstance(one.verdict, bool) and one.verdict != one.case.correct]
    if wrong:
        say(console, f"Judged otherwise than labelled ({min(len(wrong), SHOWN)} of {len(wrong)}):")
    for one in wrong[:SHOWN]:
        case, judged = one.case, "correct" if one.verdict else "incorrect"
        say(console, f"  line {case.line}: judged {judged}: {case.answer}")
        say(console, f"    asked: {case.question.text}  right: {' or '.join(case.question.golden_answers)}")


def _show_failures(checked: Sequence[Checked], console: Console) -> None:
    failed = [(one.case, str(one.verdict)) for one in checked if isinstance(one.verdict, ToolError)]
    if len(failed) == len(checked):
        raise EvoseekError(
            f"The judge gave no verdict on any of {len(failed)} answers. {for_example([why for _, why in failed])} "
            "Repair that and give the same command again."
        )
    if failed:
        say(console, f"Without a verdict ({min(len(failed), SHOWN)} of {len(failed)}):")
    for case, reason in failed[:SHOWN]:
        say(console, f"  line {case.line}: {reason}")
