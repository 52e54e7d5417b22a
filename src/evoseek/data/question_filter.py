"""Decides which questions are fit for training: each is checked by itself, and the findings are recorded batch by
batch.

A judge sorts out what DeepResearcher leaves out (arXiv 2504.03160, section 4.3): questions whose answer changes with
time, is a matter of opinion, or does harm. A question that a check cannot decide is neither kept nor dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from evoseek.corpus.questions import parse_question, question_row
from evoseek.corpus.resumable_jsonl import ResumableJsonl
from evoseek.corpus.rows import read_rows
from evoseek.env.prompts import PromptSet
from evoseek.errors import DataError, EvoseekError, ToolError
from evoseek.protocols import Chat
from evoseek.reward.judge import label_form, on_one_line, parse_label
from evoseek.training.rollout_metrics import surely_more
from evoseek.types import Message, Question

LABELS = ("good", "harmful", "time-sensitive", "subjective")
FORM = label_form(LABELS)
BATCH = 128  # questions that are checked concurrently and recorded together


@dataclass(frozen=True, slots=True)
class Finding:
    """Whether to keep a question (None: not decided), and why, in a word or, where a check failed, in a sentence."""

    keep: bool | None
    reason: str
    details: Mapping[str, object] = field(default_factory=dict[str, object])


Check = Callable[[Question], Awaitable[Finding]]
"""Checks one question. Raises ToolError if it cannot decide."""


async def check_questions(
    questions: Sequence[Question],
    check: Check,
    file: ResumableJsonl,
    *,
    max_undecided: float = 1.0,
    should_stop: Callable[[], bool] = lambda: False,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> int:
    """Check questions in order and append each batch of findings to the file, which is resumed where it ends. Returns
    how many are then done.

    Raises EvoseekError when of a batch more than the share `max_undecided` stays undecided; nothing of it is then
    written.
    """
    done = told = file.reached.get("done", 0)

    async def one(question: Question) -> Finding:
        nonlocal told
        try:
            finding = await check(question)
        except ToolError as error:
            finding = Finding(None, str(error))
        told += 1
        progress(told, len(questions))
        return finding

    while done < len(questions) and not should_stop():
        batch = questions[done : done + BATCH]
        findings = await asyncio.gather(*map(one, batch))
        _check_decided(findings, max_undecided)
        done += len(batch)
        file.append_batch(map(_row, batch, findings), {"done": done})
    return done


def load_findings(path: Path) -> list[tuple[Question, Finding]]:
    """What `check_questions` wrote, in order. Raises DataError for a line that is no finding."""
    return read_rows(path, _parse, noun="finding", keys="`question`, `keep`, `reason` and `details`")


class JudgeCheck:
    """A `Check` by a model, which is asked with question_filter.jinja of a prompt set and read strictly."""

    def __init__(self, chat: Chat, prompts: PromptSet) -> None:
        self._chat, self._template = chat, prompts["question_filter"]

    async def __call__(self, question: Question) -> Finding:
        """The model's finding. Raises ToolError."""
        messages = [Message("user", self._template.marked(question=on_one_line(question.text)))]
        label = parse_label(await self._chat.chat(messages, key=f"filter/{question.id}", form=FORM), LABELS)
        return Finding(label == "good", label)


def _check_decided(findings: Sequence[Finding], max_undecided: float) -> None:
    reasons = [finding.reason for finding in findings if finding.keep is None]
    if surely_more(len(reasons), len(findings), max_undecided):
        raise EvoseekError(
            f"{len(reasons)} of {len(findings)} questions could not be decided, and nothing of this batch was written. "
            f"The first one: {reasons[0]} Repair that and give the same command again: it resumes from there."
        )


def _row(question: Question, finding: Finding) -> Mapping[str, object]:
    return {
        "question": question_row(question),
        "keep": finding.keep,
        "reason": finding.reason,
        "details": dict(finding.details),
    }


def _parse(row: Mapping[str, object], number: int) -> tuple[Question, Finding]:
    question, keep, reason, details = (row.get(key) for key in ("question", "keep", "reason", "details"))
    if not isinstance(question, Mapping) or not isinstance(details, Mapping) or not isinstance(reason, str):
        raise DataError("This is no finding: `question`, `reason` or `details` is missing or of another type.")
    if not (keep is None or isinstance(keep, bool)):
        raise DataError(f"The key `keep` must be true, false or null, got {keep!r}.")
    fields, details = cast(Mapping[str, object], question), cast(Mapping[str, object], details)
    return parse_question(fields, str(number)), Finding(keep, reason, dict(details))
