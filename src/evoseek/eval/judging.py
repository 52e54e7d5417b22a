"""The agreement of a judge with people on labelled answers, with intervals."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console

from evoseek.errors import EvoseekError, ToolError
from evoseek.eval.results import Score
from evoseek.eval.statistics import wilson_interval
from evoseek.eval.tables import Grid, score_text, terminal
from evoseek.protocols import Chat
from evoseek.questions.questions import JudgedAnswer
from evoseek.reward.judge import Judge
from evoseek.rollout.prompts import PromptSet
from evoseek.text.printable import for_example, say
from evoseek.text.progress import CountProgress

SHOWN = 5  # of the disagreements, and of the answers without a verdict


@dataclass(frozen=True, slots=True)
class Agreement:
    """Shares of verdicts. Answers without a verdict count in every n and as invalid, but not in means; a mean over
    nothing is nan.

    agreement: verdicts that equal the label. false_positives: answers labelled incorrect, but judged correct, for which
    a policy would be rewarded. false_negatives: answers labelled correct, but judged incorrect. kappa: Cohen's (1960)
    agreement beyond chance, at most 1, 0 by chance; nan if all labels and verdicts are the same.
    """

    agreement: Score
    false_positives: Score
    false_negatives: Score
    kappa: float

    @classmethod
    def of(cls, pairs: Iterable[tuple[bool, bool | None]]) -> Agreement:
        """Count pairs of an answer's label and its verdict (None: no verdict)."""
        pairs = list(pairs)
        judged = [(label, verdict) for label, verdict in pairs if verdict is not None]
        n, agreed = len(judged), sum(label == verdict for label, verdict in judged)
        labels, verdicts = (sum(pair[side] for pair in judged) for side in (0, 1))
        by_chance = labels * verdicts + (n - labels) * (n - verdicts)  # n squared times its share
        return cls(
            _share([None if verdict is None else label == verdict for label, verdict in pairs]),
            _share([verdict for label, verdict in pairs if not label]),
            _share([None if verdict is None else not verdict for label, verdict in pairs if label]),
            (n * agreed - by_chance) / (n * n - by_chance) if n * n > by_chance else math.nan,
        )


def _share(hits: Sequence[bool | None]) -> Score:
    judged = [hit for hit in hits if hit is not None]
    mean = sum(judged) / len(judged) if judged else math.nan
    return Score(mean, wilson_interval(sum(judged), len(judged)), len(hits), len(hits) - len(judged))


def check_judge(chat: Chat, prompts: PromptSet, cases: Sequence[JudgedAnswer], *, console: Console) -> None:
    """Ask a judge about every answer; print its agreement with the labels, and disagreements. The chat bounds the
    number of concurrent calls.

    Raises EvoseekError without any verdict.
    """
    judge, done = Judge(chat, prompts), 0

    async def check(case: JudgedAnswer) -> bool | ToolError:
        nonlocal done
        try:
            verdict = await judge.verdict(case.question, case.answer, key=f"check/{case.line}/judge")
        except ToolError as error:
            verdict = error
        done += 1
        progress(done, len(cases))
        return verdict

    async def check_all() -> list[bool | ToolError]:
        return await asyncio.gather(*map(check, cases))

    with CountProgress(console, "answers") as progress:
        verdicts = asyncio.run(check_all())
    checked = list(zip(cases, verdicts, strict=True))
    failed = [(case, str(one)) for case, one in checked if isinstance(one, ToolError)]
    if len(failed) == len(checked):
        raise EvoseekError(
            f"The judge gave no verdict on any of {len(failed)} answers. {for_example([why for _, why in failed])} "
            "Repair this, and run the same command again."
        )
    agreement = Agreement.of((case.correct, one if isinstance(one, bool) else None) for case, one in checked)
    console.print(terminal(agreement_grid(f"{chat.name} as a judge, 95 % intervals", agreement)))
    wrong = [
        (
            case,
            f"judged {'correct' if one else 'incorrect'}: {case.answer}\n"
            f"    asked: {case.question.text}  right: {' or '.join(case.question.golden_answers)}",
        )
        for case, one in checked
        if isinstance(one, bool) and one != case.correct
    ]
    for about, found in (("Judged otherwise than labelled", wrong), ("Without a verdict", failed)):
        if found:
            say(console, f"{about} ({min(len(found), SHOWN)} of {len(found)}):")
        for case, text in found[:SHOWN]:
            say(console, f"  line {case.line}: {text}")


def agreement_grid(title: str, agreement: Agreement) -> Grid:
    """Show how a judge agrees with labels."""
    kappa = "none" if math.isnan(agreement.kappa) else f"{agreement.kappa:.3f}"
    rows = (
        ("agreement", score_text(agreement.agreement), "verdicts that are the label"),
        ("Cohen's kappa", kappa, "agreement beyond chance; none if all is one label and one verdict"),
        ("false positives", score_text(agreement.false_positives), "incorrect, but judged correct"),
        ("false negatives", score_text(agreement.false_negatives), "correct, but judged incorrect"),
    )
    return Grid(title, ("", "", "what it means"), rows)
