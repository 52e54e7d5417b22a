"""Searches that were made, on disk: JSON lines, one query with one page of its results each.

    {"question": {"id": "q1", "question": "...", "golden_answers": ["..."], "metadata": {...}}, "query": "...",
     "earlier": ["..."], "passages": [{"id": "...", "title": "...", "text": "..."}], "page": 1,
     "trajectory": "collect/q1", "useful": true}

`useful` is there when the record is labelled. A simulated search engine is tuned on them, and compared with them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evoseek.corpus.questions import parse_question, question_row
from evoseek.corpus.rows import read_rows
from evoseek.errors import DataError
from evoseek.files import write_atomic
from evoseek.types import Passage, Question


@dataclass(frozen=True, slots=True)
class SearchRecord:
    """A query that came up in working on a question, and what an engine found for it, best first.

    The policy saw page 1; later pages continue the results, and were not shown to it. `useful`: whether the passages
    suffice to answer the query; None if not labelled yet. `trajectory` is the id of the rollout, `earlier` the other
    queries that it had made before.
    """

    question: Question
    query: str
    passages: tuple[Passage, ...]
    page: int = 1
    useful: bool | None = None
    trajectory: str = ""
    earlier: tuple[str, ...] = ()


def document_text(passage: Passage) -> str:
    """A passage as a simulated engine's documents are, in one line: the title, unless the text begins with it."""
    title, text = " ".join(passage.title.split()), " ".join(passage.text.split())
    return text if text.casefold().startswith(title.casefold()) else f"{title.rstrip('.')}. {text}"


def document_texts(record: SearchRecord, documents: int, max_words: int) -> list[str]:
    """A record's first passages as a simulated engine writes them: so many documents of so many words at most."""
    words = (document_text(passage).split() for passage in record.passages[:documents])
    return [" ".join(text[:max_words]) for text in words]


def save_records(path: Path, records: Iterable[SearchRecord]) -> None:
    """Write a file that `load_records` reads back. Raises RunError when the disk does not take it."""
    write_atomic(path, "".join(json.dumps(record_row(record), ensure_ascii=False) + "\n" for record in records))


def load_records(path: Path, *, notify: Callable[[str], None] = lambda text: None) -> list[SearchRecord]:
    """The records of a file, in order, each once: repetitions, as in concatenated files, are reported to `notify`.

    Raises DataError, naming file and line, if the file cannot be read, holds none, or for a line that is no record.
    """
    records = read_rows(path, _record, noun="search", keys="`question`, `query`, `passages`, `page` and `trajectory`")
    distinct: dict[str, SearchRecord] = {}
    for record in records:
        distinct.setdefault(json.dumps(record_row(record), sort_keys=True), record)
    if repeated := len(records) - len(distinct):
        notify(f"{repeated} of the {len(records)} searches in {path} repeat an earlier one and are left out.")
    return list(distinct.values())


def record_row(record: SearchRecord) -> dict[str, object]:
    """What a line of a file of searches says: of a passage its id, title and text."""
    row: dict[str, object] = {
        "question": question_row(record.question),
        "query": record.query,
        "earlier": list(record.earlier),
        "passages": [{"id": p.id, "title": p.title, "text": p.text} for p in record.passages],
        "page": record.page,
        "trajectory": record.trajectory,
    }
    return row if record.useful is None else {**row, "useful": record.useful}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Passage(_Strict):
    id: str
    title: str
    text: str


class _Row(_Strict):
    question: dict[str, object]
    query: str
    passages: list[_Passage] = Field(min_length=1)
    page: int = Field(ge=1)
    trajectory: str
    earlier: list[str] = Field(default_factory=list[str])
    useful: bool | None = None


def _record(fields: Mapping[str, object], number: int) -> SearchRecord:
    try:
        row = _Row.model_validate(fields)
    except ValidationError as error:
        problem = error.errors()[0]
        raise DataError(
            f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}. Expected a search as `evoseek simulator collect` "
            "writes it: question, query, passages, page, trajectory, and useful once it is labelled. Correct the line "
            "or remove it."
        ) from error
    return SearchRecord(
        question=parse_question(row.question, str(number)),
        query=row.query,
        passages=tuple(Passage(p.id, p.id, p.title, p.text) for p in row.passages),
        page=row.page,
        useful=row.useful,
        trajectory=row.trajectory,
        earlier=tuple(row.earlier),
    )
