"""Question files: JSON lines, one question each.

    {"id": "q1", "question": "who wrote Dune?", "golden_answers": ["Frank Herbert", "Herbert"], "metadata": {"hops": 1}}

`id` may be left out (the line number stands in), `answer` may stand for `golden_answers` (a text or a list), and a
top-level `hops` is taken into the metadata.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import cast

from evoseek.errors import DataError
from evoseek.files import write_atomic
from evoseek.types import Question


def load_questions(path: Path, *, check: Callable[[Question], None] | None = None) -> list[Question]:
    """Every question of a file, in order.

    `check` may refuse a question by raising DataError (a metric refuses golden answers that it could never match).
    Raises DataError, naming file and line, if the file cannot be read, holds no question, or any line cannot be used:
    a question that silently went missing would change every score.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # splitlines would cut inside texts, at U+2028
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"The question file {path} cannot be read ({error}). It must be a UTF-8 file of JSON lines with the keys "
            "`question` and `golden_answers`."
        ) from error
    questions: dict[str, Question] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            question = _question(json.loads(line), str(number))
            if question.id in questions:
                raise DataError(f"The id {question.id!r} occurs twice. Every question needs an id of its own.")
            if check is not None:
                check(question)
        except (DataError, ValueError) as error:
            raise DataError(f"{path}:{number}: {error}") from error
        questions[question.id] = question
    if not questions:
        raise DataError(f"The question file {path} holds no question. It must hold one JSON object a line.")
    return list(questions.values())


def save_questions(path: Path, questions: Iterable[Question]) -> None:
    """Write a file that `load_questions` reads back. Raises RunError when the disk does not take it."""
    rows = (
        {
            "id": question.id,
            "question": question.text,
            "golden_answers": list(question.golden_answers),
            "metadata": dict(question.metadata),
        }
        for question in questions
    )
    write_atomic(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def _question(row: object, default_id: str) -> Question:
    if not isinstance(row, Mapping):
        raise DataError(f"Expected a JSON object, got {type(row).__name__}.")
    fields = cast(Mapping[str, object], row)
    text = fields.get("question")
    if not isinstance(text, str) or not text.strip():
        raise DataError("The key `question` is missing, empty or not a text.")
    metadata = fields.get("metadata") or {}
    if not isinstance(metadata, Mapping):
        raise DataError(f"The key `metadata` must be an object, got {type(metadata).__name__}.")
    metadata = dict(cast(Mapping[str, object], metadata))
    if "hops" in fields:
        metadata["hops"] = fields["hops"]
    return Question(
        id=str(fields.get("id", default_id)),
        text=text.strip(),
        golden_answers=_golden_answers(fields),
        metadata=metadata,
    )


def _golden_answers(fields: Mapping[str, object]) -> tuple[str, ...]:
    value = fields.get("golden_answers", fields.get("answer"))
    answers = [value] if isinstance(value, str) else value
    if not isinstance(answers, Sequence) or not answers:
        raise DataError(
            "The question has no golden answer. Give `golden_answers` (a list of texts) or `answer` (a text): without "
            "one, no answer could ever be right."
        )
    for answer in cast(Sequence[object], answers):
        if not isinstance(answer, str):
            raise DataError(f"A golden answer must be a text, got {answer!r}. Put numbers in quotes.")
    return tuple(cast(Sequence[str], answers))
