"""Sorting questions by whether they are fit for training: each is checked by itself, and the verdicts are recorded
batch by batch. A question that a check cannot decide is neither kept nor dropped.

A judge sorts out what DeepResearcher leaves out (arXiv 2504.03160, section 4.3): questions whose answer changes with
time, is a matter of opinion, or does harm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from evoseek.assembly.context import Context
from evoseek.assembly.inputs import inputs_of
from evoseek.curation.batches import BatchWork, Made
from evoseek.errors import EvoseekError, ToolError
from evoseek.protocols import Chat
from evoseek.questions.questions import load_questions, parse_question, question_row, save_questions
from evoseek.reward.judge import label_form, on_one_line, parse_label
from evoseek.rollout.prompts import PromptSet
from evoseek.storage.files import check_new_file, file_digest
from evoseek.storage.jsonl import ResumableJsonl
from evoseek.storage.runs import with_digests
from evoseek.text.normalization import evaluable_question
from evoseek.text.printable import say, say_left_out
from evoseek.types import Message, Question

LABELS = ("good", "harmful", "time-sensitive", "subjective")
FORM = label_form(LABELS)
BATCH = 128  # questions that are checked concurrently and recorded together


@dataclass(frozen=True, slots=True)
class QuestionVerdict:
    """Whether to keep a question (None: not decided), and why, in a word or, where a check failed, in a sentence."""

    keep: bool | None
    reason: str
    details: Mapping[str, object] = field(default_factory=dict[str, object])


Check = Callable[[Question], Awaitable[QuestionVerdict]]
"""Checks one question. Raises ToolError if it cannot decide."""


def filter_questions(context: Context, source: Path, out: Path, *, console: Console) -> bool:
    """Sort questions by the settings' judge, or resume that: those that are good go to `out`.

    Returns False if Ctrl-C ended it. Raises EvoseekError, also if not one is good.
    """
    settings = context.settings
    deciding = {"judge": {"model", "base_url", "temperature", "max_tokens"}, "policy": {"prompts"}}
    judge = with_digests(settings.model_dump(include=deciding), inputs_of(settings))
    identity = {**judge, "seed": settings.run.seed}

    return sort_questions(
        source,
        out,
        lambda: JudgeCheck(*context.chat("judge")),
        identity,
        max_undecided=settings.run.max_invalid,
        console=console,
    )


class JudgeCheck:
    """A `Check` by a model, which is asked with question_filter.jinja of a prompt set and read strictly."""

    def __init__(self, chat: Chat, prompts: PromptSet) -> None:
        self._chat, self._template = chat, prompts["question_filter"]

    async def __call__(self, question: Question) -> QuestionVerdict:
        messages = [Message("user", self._template.marked(question=on_one_line(question.text)))]
        label = parse_label(await self._chat.chat(messages, key=f"filter/{question.id}", form=FORM), LABELS)
        return QuestionVerdict(label == "good", label)


def sort_questions(
    source: Path,
    out: Path,
    make_check: Callable[[], Check],
    settings: Mapping[str, object],
    *,
    max_undecided: float,
    console: Console,
) -> bool:
    """Check a file of questions, and write the kept, the dropped and the undecided ones to one file each. The verdicts
    are appended to a separate file, from which the work is resumed; the three files are derived from it.

    Returns False if Ctrl-C ended it. Raises EvoseekError, also if not one is kept, or if of a batch surely more than
    the share `max_undecided` stays undecided; nothing of it is then written.
    """
    verdicts = out.with_suffix(".findings.jsonl")
    if not verdicts.exists() or not verdicts.stat().st_size:  # an error before the first batch leaves an empty file
        for path in _files(out):
            check_new_file(path)
    questions = load_questions(source, check=evaluable_question)
    work = checking(make_check(), max_undecided=max_undecided)
    if work.run(questions, verdicts, {"questions": file_digest(source), **settings}, console) is None:
        return False
    _finish(out, load_verdicts(verdicts), console)
    return True


def checking(check: Check, *, max_undecided: float = 1.0) -> BatchWork[Question, tuple[Question, QuestionVerdict]]:
    """Questions are checked; one that is not decided counts as failed."""

    async def one(question: Question, _: int) -> tuple[Question, QuestionVerdict]:
        try:
            return question, await check(question)
        except ToolError as error:
            return question, QuestionVerdict(None, str(error))

    def made_of(checked: Sequence[tuple[Question, QuestionVerdict]]) -> Made:
        rows = [{"question": question_row(question), **asdict(verdict)} for question, verdict in checked]
        undecided = [verdict.reason for _, verdict in checked if verdict.keep is None]
        return Made(rows, {}, undecided, len(checked))

    return BatchWork(one, made_of, BATCH, "questions", max_undecided)


def load_verdicts(path: Path) -> list[tuple[Question, QuestionVerdict]]:
    """What `checking` wrote, in order. Raises DataError for a line that is no verdict."""

    def verdict(row: Any) -> tuple[Question, QuestionVerdict]:
        return parse_question(row["question"], ""), QuestionVerdict(row["keep"], row["reason"], row["details"])

    return list(ResumableJsonl(path).rows(verdict, "verdict"))


def _finish(out: Path, found: Sequence[tuple[Question, QuestionVerdict]], console: Console) -> None:
    kept, dropped_file, undecided_file = _files(out)
    for keep, path in ((True, kept), (False, dropped_file), (None, undecided_file)):
        if chosen := [question for question, verdict in found if verdict.keep is keep]:
            save_questions(path, chosen)
    dropped = Counter(verdict.reason for _, verdict in found if verdict.keep is False)
    why = ", ".join(f"{number} {reason}" for reason, number in dropped.most_common())
    if dropped:
        say(console, f"{dropped.total()} of {len(found)} questions are in {dropped_file}: {why}.")
    undecided = [verdict.reason for _, verdict in found if verdict.keep is None]
    say_left_out(console, f"of {len(found)} questions are not decided, and in {undecided_file}", undecided)
    _say_passes([verdict for _, verdict in found], console)
    count = len(found) - dropped.total() - len(undecided)
    if not count:
        raise EvoseekError(f"Not one of {len(found)} questions is left, so {out} was not written.")
    say(console, f"{count} of {len(found)} questions are kept, in {out}.")


def _say_passes(verdicts: Sequence[QuestionVerdict], console: Console) -> None:
    """The number of right closed-book answers of a question, and the number of its answers."""
    asked = [verdict.details for verdict in verdicts if "samples" in verdict.details]
    if not asked:
        return
    passes = Counter(int(str(details["right"])) for details in asked)
    answered, samples = (sum(int(str(details[key])) for details in asked) for key in ("answered", "samples"))
    said = ", ".join(f"{right}: {number}" for right, number in sorted(passes.items()))
    say(console, f"Questions by the number of closed-book answers that are right: {said}.")
    say(console, f"{answered} of {samples} samples held an answer at all; one without is never right.")


def _files(out: Path) -> tuple[Path, Path, Path]:
    """Those of the kept, the dropped and the undecided questions."""
    return out, out.with_suffix(".dropped.jsonl"), out.with_suffix(".undecided.jsonl")
