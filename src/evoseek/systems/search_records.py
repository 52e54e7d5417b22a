"""Searches that were made, on disk: JSON lines, one query with one page of its results each.

    {"question": {"id": "q1", "question": "...", "golden_answers": ["..."], "metadata": {...}}, "query": "...",
     "passages": [{"id": "...", "title": "...", "text": "..."}], "page": 1, "trajectory": "collect/q1", "useful": true}

`useful` is there when the record is labelled. A simulated search engine is tuned on them, and compared with them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evoseek.corpus.questions import question_row
from evoseek.errors import DataError
from evoseek.files import write_atomic
from evoseek.types import Passage, Question


@dataclass(frozen=True, slots=True)
class SearchRecord:
    """A query that came up in working on a question, and what an engine found for it, best first.

    Page 1 is what the policy saw; later pages go on from there, and nobody saw them. `useful`: the passages suffice to
    answer the query; None if that is not known yet. `trajectory` is the id of the rollout.
    """

    question: Question
    query: str
    passages: tuple[Passage, ...]
    page: int = 1
    useful: bool | None = None
    trajectory: str = ""


def document_text(passage: Passage) -> str:
    """A passage as a simulated engine's documents are, in one line: the title, unless the text begins with it."""
    title, text = " ".join(passage.title.split()), " ".join(passage.text.split())
    return text if text.casefold().startswith(title.casefold()) else f"{title.rstrip('.')}. {text}"


def save_records(path: Path, records: Iterable[SearchRecord]) -> None:
    """Write a file that `load_records` reads back, of a passage its id, title and text. Raises RunError when the disk
    does not take it."""
    write_atomic(path, "".join(json.dumps(_row(record), ensure_ascii=False) + "\n" for record in records))


def load_records(path: Path) -> list[SearchRecord]:
    """The records of a file. Raises DataError if it cannot be read or holds none, or for a line that is no record."""
    records: list[SearchRecord] = []
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    records.append(_record(line, f"{path}:{number}"))
    except OSError as error:
        raise DataError(
            f"The file of searches {path} cannot be read ({error.strerror or error}). Give one that `evoseek simulator "
            "collect` wrote."
        ) from error
    if not records:
        raise DataError(f"{path} holds no searches. Give a file that `evoseek simulator collect` wrote.")
    return records


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Question(_Strict):
    id: str
    question: str
    golden_answers: list[str]
    metadata: dict[str, object]


class _Passage(_Strict):
    id: str
    title: str
    text: str


class _Row(_Strict):
    question: _Question
    query: str
    passages: list[_Passage] = Field(min_length=1)
    page: int = Field(ge=1)
    trajectory: str
    useful: bool | None = None


def _row(record: SearchRecord) -> dict[str, object]:
    row: dict[str, object] = {
        "question": question_row(record.question),
        "query": record.query,
        "passages": [{"id": p.id, "title": p.title, "text": p.text} for p in record.passages],
        "page": record.page,
        "trajectory": record.trajectory,
    }
    return row if record.useful is None else {**row, "useful": record.useful}


def _record(line: bytes, where: str) -> SearchRecord:
    try:
        row = _Row.model_validate_json(line)
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(str(part) for part in problem["loc"]) or "the line"
        raise DataError(
            f"{where}: {key}: {problem['msg']}. Expected a search as `evoseek simulator collect` writes it: question, "
            "query, passages, page, trajectory, and useful once it is labelled. Correct the line or remove it."
        ) from error
    asked = row.question
    return SearchRecord(
        question=Question(asked.id, asked.question, tuple(asked.golden_answers), asked.metadata),
        query=row.query,
        passages=tuple(Passage(p.id, p.id, p.title, p.text) for p in row.passages),
        page=row.page,
        useful=row.useful,
        trajectory=row.trajectory,
    )
