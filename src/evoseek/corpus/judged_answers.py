"""Answers that people have judged, by which a judge is measured: JSON lines, one answer each.

{"question": "who wrote Dune?", "golden_answers": ["Frank Herbert"], "answer": "F. Herbert", "correct": true}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from evoseek.corpus.questions import parse_question
from evoseek.corpus.rows import read_rows
from evoseek.errors import DataError
from evoseek.types import Question


@dataclass(frozen=True, slots=True)
class JudgedAnswer:
    """An answer to a question, whether it is correct, and the line that says so."""

    question: Question
    answer: str
    correct: bool
    line: int


def load_judged_answers(path: Path) -> list[JudgedAnswer]:
    """Every answer of a file, in order.

    Raises DataError, naming file and line, if the file cannot be read, holds no answer, or any line cannot be used.
    """
    keys = "`question`, `golden_answers`, `answer` and `correct`"
    return read_rows(path, _judged_answer, noun="judged answer", keys=keys)


def _judged_answer(fields: Mapping[str, object], line: int) -> JudgedAnswer:
    answer, correct = fields.get("answer"), fields.get("correct")
    if not isinstance(answer, str):
        raise DataError("The key `answer`, the text that is to be judged, is missing or not a text.")
    if not isinstance(correct, bool):
        raise DataError(f"The key `correct`, true or false, says whether the answer is; got {correct!r}.")
    if "golden_answers" not in fields:
        raise DataError("The key `golden_answers`, a list of the right answers, is missing.")
    return JudgedAnswer(parse_question(fields, str(line)), answer, correct, line)
