"""Question files: JSON lines, one question each.

    {"id": "q1", "question": "who wrote Dune?", "golden_answers": ["Frank Herbert", "Herbert"], "metadata": {"hops": 1}}

`id` may be left out (the line number stands in), `answer` may stand for `golden_answers` (a text or a list), and a
top-level `hops` is taken into the metadata.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import TypedDict, cast

from evoseek.corpus.decoding import check_regular
from evoseek.corpus.jsonl import bounded_lines
from evoseek.errors import DataError
from evoseek.files import write_atomic
from evoseek.types import Question

MAX_LINE_BYTES = 16 * 2**20


def load_questions(path: Path, *, check: Callable[[Question], None] | None = None) -> list[Question]:
    """Every question of a file, in order.

    `check` may refuse a question by raising DataError (a metric refuses golden answers that it could never match).
    Raises DataError, naming file and line, if the file cannot be read, holds no question, or any line cannot be used:
    a question that silently went missing would change every score.
    """
    questions: dict[str, Question] = {}
    for number, line in _lines(path):
        try:
            if not (text := _decoded(line)).strip():
                continue
            question = _question(json.loads(text), str(number))
            if question.id in questions:
                raise DataError(f"The id {question.id!r} occurs twice. Every question needs an id of its own.")
            if check is not None:
                check(question)
        except (DataError, ValueError) as error:
            raise DataError(f"{path}:{number}: {error}") from error
        except RecursionError as error:
            raise DataError(
                f"{path}:{number}: The JSON is nested too deeply. A question is one flat object."
            ) from error
        questions[question.id] = question
    if not questions:
        raise DataError(f"The question file {path} holds no question. It must hold one JSON object a line.")
    return list(questions.values())


def save_questions(path: Path, questions: Iterable[Question]) -> None:
    """Write a file that `load_questions` reads back. Raises RunError when the disk does not take it."""
    write_atomic(path, "".join(json.dumps(question_row(q), ensure_ascii=False) + "\n" for q in questions))


class QuestionRow(TypedDict):
    """A question as a line of a question file has it."""

    id: str
    question: str
    golden_answers: list[str]
    metadata: dict[str, object]


def question_row(question: Question) -> QuestionRow:
    """What a line of a question file says."""
    return {
        "id": question.id,
        "question": question.text,
        "golden_answers": list(question.golden_answers),
        "metadata": dict(question.metadata),
    }


def _lines(path: Path) -> Iterator[tuple[int, bytes | None]]:
    try:
        check_regular(path)
        with path.open("rb") as file:
            yield from bounded_lines(file, MAX_LINE_BYTES)
    except (OSError, DataError) as error:
        raise DataError(
            f"The question file {path} cannot be read ({error}). It must be a UTF-8 file of JSON lines with the keys "
            "`question` and `golden_answers`."
        ) from error


def _decoded(line: bytes | None) -> str:
    if line is None:
        raise DataError(f"The line is longer than {MAX_LINE_BYTES:,} bytes. Every question needs a line of its own.")
    if b"\0" in line:
        raise DataError("The line holds NUL bytes: the file is binary or damaged. JSON lines are UTF-8 text.")
    try:
        return line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError("The line is not UTF-8 text. Save the file as UTF-8.") from error


def _question(row: object, default_id: str) -> Question:
    if not isinstance(row, Mapping):
        raise DataError(f"Expected a JSON object, got {type(row).__name__}.")
    fields = cast(Mapping[str, object], row)
    text = fields.get("question")
    if not isinstance(text, str) or not text.strip():
        raise DataError("The key `question` is missing, empty or not a text.")
    metadata = {} if fields.get("metadata") is None else fields["metadata"]
    if not isinstance(metadata, Mapping):
        raise DataError(f"The key `metadata` must be an object, got {type(metadata).__name__}.")
    metadata = dict(cast(Mapping[str, object], metadata))
    if "hops" in fields:
        metadata["hops"] = fields["hops"]
    if "hops" in metadata:
        _check_type("hops", metadata["hops"], int)
    identifier = fields.get("id", default_id)
    _check_type("id", identifier, int | str)
    return Question(
        id=str(identifier),
        text=text.strip(),
        golden_answers=_golden_answers(fields),
        metadata=metadata,
    )


def _check_type(key: str, value: object, expected: type[int] | UnionType) -> None:
    if isinstance(value, bool) or not isinstance(value, expected):
        wanted = "an integer" if expected is int else "a text or an integer"
        raise DataError(f"The key `{key}` must be {wanted}, got {value!r}.")


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
