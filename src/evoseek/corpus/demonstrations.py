"""Demonstrations: JSON lines, each a question with the turns in which a policy should search for its answer.

    {"id": "q1", "question": "When was the director of Alien born?", "golden_answers": ["30 November 1937"],
     "turns": [{"think": "Who directed it?", "query": "Alien film director"},
               {"think": "Ridley Scott did.", "query": "Ridley Scott"},
               {"answer": "30 November 1937"}]}

Every turn but the last has a `query`, the last one an `answer`, which may be wrong; `think` is optional. So are `id`
(default: the line number), `golden_answers` and `metadata`. What the queries find is not in the file: it is looked up
when the demonstration is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evoseek.corpus.rows import read_rows
from evoseek.errors import DataError
from evoseek.types import Question


@dataclass(frozen=True, slots=True)
class DemonstratedTurn:
    """A thought ("" for none), followed by a search or, in the last turn, by the answer."""

    thought: str = ""
    query: str | None = None
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A question and the turns that lead to an answer. Its golden answers are optional and not trained on."""

    question: Question
    turns: tuple[DemonstratedTurn, ...]


def load_demonstrations(path: Path) -> list[Demonstration]:
    """Every demonstration of a file, in order. Raises DataError, naming file and lines, if the file cannot be read,
    holds no demonstration, or any line cannot be used."""
    return read_rows(path, _demonstration, noun="demonstration", keys="`question` and `turns`")


def demonstration_row(demonstration: Demonstration) -> dict[str, object]:
    """The content of a line, from which `load_demonstrations` makes an equal demonstration."""
    question = demonstration.question
    values = ((turn.thought or None, turn.query, turn.answer) for turn in demonstration.turns)
    turns = [
        {key: value for key, value in zip(("think", "query", "answer"), turn, strict=True) if value is not None}
        for turn in values
    ]
    return {
        "id": question.id,
        "question": question.text,
        "golden_answers": list(question.golden_answers),
        "metadata": dict(question.metadata),
        "turns": turns,
    }


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, str_strip_whitespace=True)


class _Turn(_Strict):
    think: str = ""
    query: str | None = Field(default=None, min_length=1)
    answer: str | None = Field(default=None, min_length=1)


class _Row(_Strict):
    id: str | int | None = None
    question: str = Field(min_length=1)
    golden_answers: list[str] = Field(default_factory=list[str])
    metadata: dict[str, object] = Field(default_factory=dict[str, object])
    turns: list[_Turn] = Field(min_length=1)


def _demonstration(fields: Mapping[str, object], number: int) -> Demonstration:
    try:
        row = _Row.model_validate(fields)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        raise DataError(
            f"{where}{': ' if where else ''}{problem['msg']}. Expected a question with turns: each with a `query`, the "
            "last one with an `answer`, and if wanted with a `think`. Correct the line or remove it."
        ) from error
    for place, turn in enumerate(row.turns, start=1):
        ends = place == len(row.turns)
        if (turn.query is None, turn.answer is None) != (ends, not ends):
            raise DataError(
                f"Turn {place} of {len(row.turns)} has to have {'an `answer`' if ends else 'a `query`'} and no "
                f"{'`query`' if ends else '`answer`'}: every turn searches, and the last one answers."
            )
    identifier = str(number) if row.id is None else str(row.id)
    return Demonstration(
        Question(identifier, row.question, tuple(row.golden_answers), row.metadata),
        tuple(DemonstratedTurn(turn.think, turn.query, turn.answer) for turn in row.turns),
    )
