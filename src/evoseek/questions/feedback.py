"""What people say of answers: `feedback.jsonl`, a line for each answer that was judged, which only its owner may read.

    {"id": "chatcmpl-...", "time": "...", "question": "...", "answer": "...", "verdict": "wrong", "right_answer": "...",
     "note": "...", "earlier": 0, "searches": [{"tool": "search", "arguments": {...}, "found": ["id", ...]}],
     "citations": ["id", ...], "unsupported": null}

`answer` is null where there was none, or the documents were said not to hold it; `unsupported` is then the model's
answer that no passage supports, if there was one. `earlier` is the number of messages before the question that the
model was given. A second verdict on an answer is a second line, which replaces the first
one. The file takes at most 10,000 lines and 50 MB; beyond that new ones are refused until some are deleted. Servers and
commands may write it at the same time.
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
    """The file has as much as it takes."""


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class Feedback:
    """A verdict on an answer; see the page."""

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
        """The right answer; "" where the documents do not hold one, None where it is unknown."""
        if self.verdict == "wrong":
            is_none = bool(fold(self.right_answer)) and is_refusal(self.right_answer)
            return "" if is_none else self.right_answer or None
        return "" if self.answer is None or is_refusal(self.answer) else self.answer


_ROW = TypeAdapter(Feedback)


class FeedbackFile:
    """The file at `path`, which need not be there yet. It may be used by several threads and processes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, feedback: Feedback) -> None:
        """Append a verdict. Raises FullError if the file is full, RunError when the disk does not take it."""
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
        """One verdict for each answer, the last one, in the order of the first. Raises DataError, naming the line."""
        rows = ResumableJsonl(self.path).rows(made_by(_ROW), "verdict on an answer")
        return list({feedback.id: feedback for feedback in rows}.values())

    def delete(self, ids: Collection[str]) -> int:
        """Remove every line about these answers; the number of answers removed. Raises as `read`, and RunError."""
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
    """The questions of verdicts: those whose right answer is `known` (or that the documents are known not to answer);
    those with only a `wrong` answer known, which stands in the place of the golden one; and the number of those that
    were `not_alone`: asked within a conversation, without which they mean something else."""

    known: tuple[Question, ...]
    wrong: tuple[Question, ...]
    not_alone: int

    @classmethod
    def of(cls, verdicts: Iterable[Feedback]) -> JudgedQuestions:
        """Each question once, however often it was asked; the last verdict with a right answer counts, and without
        one the last answer that was judged wrong. The metadata of those that a verdict has named the right answer of
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
    """Return the question with this answer; "": the documents do not answer it."""
    metadata: dict[str, object] = {"source": "feedback"}
    if is_corrected:
        metadata["corrected"] = True
    if not answer:
        metadata["answerable"] = False
    return Question(f"feedback-{feedback.id}", feedback.question, (answer,) if answer else (), metadata)


def numbered(verdicts: Sequence[Feedback], which: str) -> list[str]:
    """Return the ids of those that `which` names: `all`, or the number of one in the list, from 1. Raises DataError."""
    if which == "all":
        return [feedback.id for feedback in verdicts]
    if not which.isdecimal() or not 1 <= int(which) <= len(verdicts):
        raise DataError(
            f"{which!r} names none of the {len(verdicts)} conversations. Expected all, or the number of one as "
            "`evoseek feedback` lists them."
        )
    return [verdicts[int(which) - 1].id]
