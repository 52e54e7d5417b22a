"""How well a judge agrees with people on labelled answers, with intervals."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from evoseek.corpus.questions import JudgedAnswer
from evoseek.env.prompts import PromptSet
from evoseek.errors import EvoseekError, ToolError
from evoseek.eval.evaluate import Score
from evoseek.eval.statistics import wilson_interval
from evoseek.protocols import Chat
from evoseek.report.evaluation import score_text
from evoseek.report.printable import for_example, say
from evoseek.report.progress import CountProgress
from evoseek.reward.judge import Judge

_BOTH = (True, False)


@dataclass(frozen=True, slots=True)
class Agreement:
    """`counts[label, verdict]` is the number of answers with this label and verdict (None: the judge gave no verdict).

    Answers without a verdict count in every n and as invalid, and are excluded from all means. A mean over nothing is
    nan.
    """

    counts: Mapping[tuple[bool, bool | None], int]

    @classmethod
    def of(cls, pairs: Iterable[tuple[bool, bool | None]]) -> Agreement:
        """From each answer's label and verdict."""
        return cls(Counter(pairs))

    @property
    def agreement(self) -> Score:
        """Share of verdicts that are the label."""
        return self._share([(True, True), (False, False)], _BOTH)

    @property
    def false_positives(self) -> Score:
        """Share judged correct among answers labelled incorrect: wrong answers that a policy would be rewarded for."""
        return self._share([(False, True)], (False,))

    @property
    def false_negatives(self) -> Score:
        """Share judged incorrect among answers labelled correct."""
        return self._share([(True, False)], (True,))

    @property
    def kappa(self) -> float:
        """Cohen's kappa (1960): agreement beyond chance, 1 at best, 0 by chance, over the answers with a verdict.

        (p_o - p_e) / (1 - p_e), p_o the agreement and p_e what it would be if labels and verdicts kept their shares but
        knew nothing of each other; nan if all labels and all verdicts are the same.
        """
        n = self._count(_BOTH, _BOTH)
        by_chance = sum(self._count((value,), _BOTH) * self._count(_BOTH, (value,)) for value in _BOTH)
        agreed = sum(self._count((value,), (value,)) for value in _BOTH)
        return (n * agreed - by_chance) / (n * n - by_chance) if n * n > by_chance else math.nan

    def _share(self, cells: Iterable[tuple[bool, bool]], labels: tuple[bool, ...]) -> Score:
        hits, judged = sum(self.counts.get(cell, 0) for cell in cells), self._count(labels, _BOTH)
        unread = self._count(labels, (None,))
        mean = hits / judged if judged else math.nan
        return Score(mean, wilson_interval(hits, judged), judged + unread, unread)

    def _count(self, labels: tuple[bool, ...], verdicts: tuple[bool | None, ...]) -> int:
        return sum(self.counts.get((label, verdict), 0) for label in labels for verdict in verdicts)


SHOWN = 5  # disagreements, and answers without a verdict


@dataclass(frozen=True, slots=True)
class Checked:
    """A judged answer with its verdict, or the failure instead of one."""

    case: JudgedAnswer
    verdict: bool | ToolError


def agreement_table(title: str, agreement: Agreement) -> Table:
    """How a judge agrees with labels."""
    table = Table("", "", "what it means", title=title)
    table.add_row("agreement", score_text(agreement.agreement), "verdicts that are the label")
    kappa = "none" if math.isnan(agreement.kappa) else f"{agreement.kappa:.3f}"
    table.add_row("Cohen's kappa", kappa, "agreement beyond chance; none if all is one label and one verdict")
    table.add_row("false positives", score_text(agreement.false_positives), "incorrect, but judged correct")
    table.add_row("false negatives", score_text(agreement.false_negatives), "correct, but judged incorrect")
    return table


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
