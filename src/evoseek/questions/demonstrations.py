"""Demonstrations: JSON lines, each with the turns in which a solver should answer a question by searching, or in which
a proposer should write one.

    {"id": "q1", "question": "When was the director of Alien born?", "golden_answers": ["30 November 1937"],
     "turns": [{"think": "Who directed it?", "query": "Alien film director"},
               {"think": "Ridley Scott did.", "query": "Ridley Scott"},
               {"answer": "30 November 1937"}]}

Every turn except the last has a `query`, the last one an `answer`, which may be wrong; `think` is optional. So are `id`
(default: the line number), `golden_answers` and `metadata`, whose `hidden` is the same as a question's. Search results
are not in the file: the queries are run when the demonstration is shown.

A proposer's line has a passage, the requested number of hops (0: it chooses), and turns, the last of them with a
`question`, too:

    {"role": "proposer", "passage": {"title": "Alien", "text": "Alien is a 1979 film directed by Ridley Scott."},
     "hops": 2, "turns": [{"think": "Ridley Scott directed it.", "query": "Ridley Scott"},
                          {"question": "When was the director of Alien born?", "answer": "30 November 1937"}]}

The passage is shown unchanged: write it as the index has it. A file may contain lines of both roles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evoseek.errors import DataError, first_problem
from evoseek.questions.questions import check_hidden, question_row
from evoseek.text.rows import read_rows
from evoseek.types import Passage, Question

_KEYS = ("think", "query", "question", "answer")


@dataclass(frozen=True, slots=True)
class DemonstratedTurn:
    """A thought ("" for none), followed by a search or, in the last turn, by the answer. A proposer's last turn has the
    question before the answer."""

    thought: str = ""
    query: str | None = None
    answer: str | None = None
    question: str | None = None


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A question and the turns that lead to an answer. Its golden answers are optional and not trained on."""

    question: Question
    turns: tuple[DemonstratedTurn, ...]


@dataclass(frozen=True, slots=True)
class ProposerDemonstration:
    """A passage, the requested number of hops (0: the proposer chooses), and the turns that lead to a question and its
    answer."""

    id: str
    passage: Passage
    hops: int
    turns: tuple[DemonstratedTurn, ...]


def load_demonstrations(path: Path) -> list[Demonstration | ProposerDemonstration]:
    """Read every demonstration of a file, in order. Raises DataError, naming file and lines, if the file cannot be
    read, has no demonstration, or has an unusable line."""
    keys = "`question` (of a proposer: `role`, `passage` and `hops`) and `turns`"
    return read_rows(path, _demonstration, noun="demonstration", keys=keys)


def demonstration_row(demonstration: Demonstration | ProposerDemonstration) -> dict[str, object]:
    """Return the contents of a line from which `load_demonstrations` makes an equal demonstration."""
    values = ((turn.thought or None, turn.query, turn.question, turn.answer) for turn in demonstration.turns)
    turns = [{key: value for key, value in zip(_KEYS, turn, strict=True) if value is not None} for turn in values]
    if isinstance(demonstration, ProposerDemonstration):
        shown = {"title": demonstration.passage.label, "text": demonstration.passage.text}
        task = {"role": "proposer", "id": demonstration.id, "passage": shown, "hops": demonstration.hops}
        return {**task, "turns": turns}
    return {**question_row(demonstration.question), "turns": turns}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, str_strip_whitespace=True)


class _TurnLine(_Strict):
    think: str = ""
    query: str | None = Field(default=None, min_length=1)
    answer: str | None = Field(default=None, min_length=1)
    question: str | None = Field(default=None, min_length=1)


class _PassageLine(_Strict):
    title: str = ""
    text: str = Field(min_length=1)


class _DemonstrationLine(_Strict):
    role: Literal["solver", "proposer"] = "solver"
    id: str | int | None = None
    turns: list[_TurnLine] = Field(min_length=1)


class _SolverRow(_DemonstrationLine):
    question: str = Field(min_length=1)
    golden_answers: list[str] = Field(default_factory=list[str])
    metadata: dict[str, object] = Field(default_factory=dict[str, object])


class _ProposerRow(_DemonstrationLine):
    passage: _PassageLine
    hops: int = Field(ge=0)


_EXPECTED = {
    _SolverRow: "a question with turns: each with a `query`, the last one with an `answer`, and if wanted with a "
    "`think`",
    _ProposerRow: "a passage (`title`, `text`) and `hops` with turns: each with a `query`, the last one with a "
    "`question` and an `answer`, and if wanted with a `think`",
}


def _demonstration(fields: Mapping[str, object], number: int) -> Demonstration | ProposerDemonstration:
    kind = _ProposerRow if fields.get("role") == "proposer" else _SolverRow
    try:
        row = kind.model_validate(fields)
    except ValidationError as error:
        raise DataError(
            f"{first_problem(error)}. Expected {_EXPECTED[kind]}. Correct the line or remove it."
        ) from error
    turns, id = _turns(row), str(number) if row.id is None else str(row.id)
    if isinstance(row, _ProposerRow):
        return ProposerDemonstration(id, Passage(id, id, row.passage.title, row.passage.text), row.hops, turns)
    check_hidden(row.metadata)
    return Demonstration(Question(id, row.question, tuple(row.golden_answers), row.metadata), turns)


def _turns(row: _DemonstrationLine) -> tuple[DemonstratedTurn, ...]:
    """Return the turns, each with the keys required at its place. Raises DataError."""
    proposes = row.role == "proposer"
    for place, turn in enumerate(row.turns, start=1):
        ends = place == len(row.turns)
        if (turn.query is None, turn.answer is None) != (ends, not ends):
            raise DataError(
                f"Turn {place} of {len(row.turns)} has to have {'an `answer`' if ends else 'a `query`'} and no "
                f"{'`query`' if ends else '`answer`'}: every turn searches, and the last one answers."
            )
        if (turn.question is not None) != (ends and proposes):
            raise DataError(
                f"Turn {place} of {len(row.turns)} has to have {'a' if ends and proposes else 'no'} `question`: the "
                "last turn of a proposer states the question that it wrote, and no other turn does."
            )
    return tuple(DemonstratedTurn(turn.think, turn.query, turn.answer, turn.question) for turn in row.turns)
