"""People's verdicts on answers: `feedback.jsonl`, a line for each judged answer, readable only by the file's owner.

    {"id": "chatcmpl-...", "time": "...", "question": "...", "answer": "...", "verdict": "wrong", "right_answer": "...",
     "note": "...", "earlier": 0, "searches": [{"tool": "search", "arguments": {...}, "found": ["id", ...]}],
     "citations": ["id", ...], "unsupported": null}

`answer` is null if there was none, or if the reply said that the documents lack it. `unsupported` is then the model's
answer without a supporting passage, if any. `earlier` is the number of messages that the model received before the
question. A second verdict on an answer is a second line, which replaces the first one. The file holds at most 10,000
lines and 50 MB; beyond that, new verdicts are refused until some are deleted. Servers and commands may write it
concurrently.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, TypeAdapter, with_config

from evoseek.errors import DataError, RunError
from evoseek.questions.questions import folded
from evoseek.storage.files import write_atomic
from evoseek.storage.jsonl import ResumableJsonl, locked, made_by
from evoseek.text.language import is_refusal
from evoseek.text.scripts import fold
from evoseek.types import Question

MAX_LINES, MAX_BYTES = 10_000, 50_000_000
MAX_NOTE, MAX_ANSWER = 2_000, 500  # characters
_PRIVATE = 0o600
_UNICODE = json.JSONEncoder(ensure_ascii=False)


class FullError(RunError):
    """The file is full."""


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class Feedback:
    """A verdict on an answer; the module's docstring describes the fields."""

    id: str
    time: str
    question: str
    answer: str | None
    verdict: Literal["right", "wrong"]
    right_answer: str = ""
    note: str = ""
    earlier: int = 0
    searches: tuple[Mapping[str, Any], ...] = ()
    citations: tuple[str, ...] = ()
    unsupported: str | None = None

    @property
    def known_answer(self) -> str | None:
        """The right answer; "" if the documents have none, None if it is unknown."""
        if self.verdict == "wrong":
            is_none = bool(fold(self.right_answer)) and is_refusal(self.right_answer)
            return "" if is_none else self.right_answer or None
        return "" if self.answer is None or is_refusal(self.answer) else self.answer


_ROW = TypeAdapter(Feedback)


class FeedbackFile:
    """The file at `path`, which need not exist yet. Several threads and processes may use it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, feedback: Feedback) -> None:
        """Append a verdict. Raises FullError if the file is full, RunError if the disk refuses it."""
        log = ResumableJsonl(self.path, _UNICODE)
        with locked(self.path, _PRIVATE):
            size = len(_UNICODE.encode(asdict(feedback)).encode()) + 1
            with self.path.open("rb") as file:
                lines = sum(1 for _ in file)
            if lines >= MAX_LINES or log.size + size > MAX_BYTES:
                raise FullError(
                    f"{self.path} has {lines:,} lines and {log.size:,} bytes; it takes {MAX_LINES:,} and "
                    f"{MAX_BYTES:,}. The verdict was not kept. Delete some with `evoseek feedback --delete`."
                )
            log.append([asdict(feedback)])

    def read(self) -> list[Feedback]:
        """Read the last verdict on each answer, in the order of the first ones. Raises DataError, naming the line."""
        rows = ResumableJsonl(self.path).rows(made_by(_ROW), "verdict on an answer")
        return list({feedback.id: feedback for feedback in rows}.values())

    def delete(self, ids: Collection[str]) -> int:
        """Remove every line about these answers; return the number of answers. Raises as `read`, and RunError."""
        if not self.path.exists():
            return 0
        with locked(self.path, _PRIVATE):
            every = self.read()
            kept = [feedback for feedback in every if feedback.id not in ids]
            text = "".join(_UNICODE.encode(asdict(feedback)) + "\n" for feedback in kept)
            write_atomic(self.path, text, mode=_PRIVATE)
        return len(every) - len(kept)


@dataclass(frozen=True, slots=True)
class JudgedQuestions:
    """The questions of verdicts: in `known`, the right answer is known (or known to be missing from the documents). In
    `wrong`, only a wrong answer is known, which takes the place of the golden one. `not_alone` is the number of
    questions asked within a conversation, without which they mean something else."""

    known: tuple[Question, ...]
    wrong: tuple[Question, ...]
    not_alone: int

    @classmethod
    def of(cls, verdicts: Iterable[Feedback]) -> JudgedQuestions:
        """Collect each question once, even if it was asked repeatedly. The last verdict with a right answer counts;
        without one, the last answer that was judged wrong. If a verdict named the right answer, the question's metadata
        have `corrected`."""
        alone, answers, wrong, not_alone = dict[str, Feedback](), dict[str, str](), dict[str, str](), 0
        corrected = set[str]()
        for feedback in verdicts:
            if feedback.earlier:
                not_alone += 1
                continue
            text = folded(feedback.question)
            alone.setdefault(text, feedback)
            if (answer := feedback.known_answer) is not None:
                answers[text] = answer
                corrected |= {text} if feedback.verdict == "wrong" else set()
            else:
                wrong[text] = feedback.answer or feedback.unsupported or ""
        known = tuple(_question(alone[text], answer, text in corrected) for text, answer in answers.items())
        others = tuple(_question(alone[text], answer) for text, answer in wrong.items() if text not in answers)
        return cls(known, others, not_alone)


def _question(feedback: Feedback, answer: str, is_corrected: bool = False) -> Question:
    """Make the question with this answer; "": the documents do not answer it."""
    metadata: dict[str, object] = {"source": "feedback"}
    if is_corrected:
        metadata["corrected"] = True
    if not answer:
        metadata["answerable"] = False
    return Question(f"feedback-{feedback.id}", feedback.question, (answer,) if answer else (), metadata)


def numbered(verdicts: Sequence[Feedback], which: str) -> list[str]:
    """Return the ids of the verdicts named by `which`: `all`, or a number in the list, from 1. Raises DataError."""
    if which == "all":
        return [feedback.id for feedback in verdicts]
    if not which.isdecimal() or not 1 <= int(which) <= len(verdicts):
        raise DataError(
            f"{which!r} names none of the {len(verdicts)} conversations. Expected all, or the number of one as "
            "`evoseek feedback` lists them."
        )
    return [verdicts[int(which) - 1].id]
