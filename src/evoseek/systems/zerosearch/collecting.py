"""Collecting a search engine's results for a policy's queries: the first step to a simulated engine (ZeroSearch, arXiv
2505.04588, section 3.2)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from rich.console import Console

from evoseek.assembly.context import Context
from evoseek.assembly.inputs import identity, read_questions
from evoseek.config.sections import lookup
from evoseek.curation.batches import BatchWork, Made
from evoseek.errors import ConfigError, DataError, EvoseekError, first_problem
from evoseek.protocols import SearchEngine
from evoseek.questions.questions import parse_question, question_row
from evoseek.rollout.roller import Roller
from evoseek.search.calling import outside
from evoseek.storage.files import write_atomic
from evoseek.text.printable import say, say_left_out
from evoseek.text.rows import read_rows
from evoseek.text.scripts import well_formed
from evoseek.types import Passage, Question, Trajectory


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
        raise DataError(
            f"{first_problem(error)}. Expected a search as `evoseek simulator collect` "
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


BATCH = 64  # rollouts that are made concurrently and recorded together


def collecting(roller: Roller, engine: PagingEngine) -> BatchWork[Question, Trajectory]:
    """A policy is rolled out once on each question, and the results of its searches are recorded.

    `engine` is the one that the roller searches with. A record for each query and page; the same query of the same
    question once. What is counted are the records by their page (as a text, for JSON).
    """

    async def play(question: Question, _: int) -> Trajectory:
        return await roller.one(question, f"collect/{question.id}")

    def made_of(trajectories: Sequence[Trajectory]) -> Made:
        records = [record for trajectory in trajectories for record in _found_by(trajectory, engine)]
        failures = [trajectory.failure or "" for trajectory in trajectories if trajectory.stop_reason.is_failure]
        pages = Counter(str(record.page) for record in records)
        return Made(map(record_row, records), pages, failures, len(trajectories))

    return BatchWork(play, made_of, BATCH, "rollouts")


def collect_searches(
    context: Context,
    out: Path,
    *,
    pages: int,
    limit: int | None,
    console: Console,
) -> bool:
    """Roll a policy out on its settings' questions and record the results of its searches, `pages` pages of each, or
    resume that.

    Returns False if Ctrl-C ended it. Raises ConfigError if `out` is another file or cannot be made; EvoseekError if no
    search came of it.
    """
    settings = context.settings
    if any(getattr(tool, "context", 0) for tool in settings.tools):
        raise ConfigError(
            "The tool search asks with words before the query (context), which a simulator is not shown. Collect "
            "searches without: set its context to 0 in tools."
        )
    engine = PagingEngine(cast("SearchEngine", context.engine), pages)
    path, reward = lookup(settings, "questions.path") or "", settings.reward.name
    questions = read_questions(path, setting="questions.path", reward=reward)[:limit]
    begun_with = {**identity(settings, context.checkpoint), "pages": pages, "limit": limit}
    collected = collecting(context.solver(engine), engine).run(questions, out, begun_with, console)
    if collected is None:
        return False
    say_left_out(console, "rollouts failed and give no searches", collected.failures)
    if not collected.counts:
        raise EvoseekError(
            f"Nothing was collected: in {len(questions)} rollouts of {context.agent.policy.name} there was no search "
            "that found anything. Take a policy that searches, and an index that holds what the questions are about."
        )
    found = ", ".join(f"{count} on page {page}" for page, count in sorted(collected.counts.items()))
    say(console, f"{len(questions)} rollouts. Searches in {out}: {found}.")
    return True


def _found_by(trajectory: Trajectory, engine: PagingEngine) -> Iterable[SearchRecord]:
    """Each query and page once; nothing of a rollout that failed."""
    found: dict[tuple[str, int], SearchRecord] = {}
    for record in () if trajectory.stop_reason.is_failure else _records(trajectory, engine):
        found.setdefault((record.query, record.page), record)
    return found.values()


def _records(trajectory: Trajectory, engine: PagingEngine) -> Iterator[SearchRecord]:
    """Of searches that found something."""
    earlier: list[str] = []
    for result in trajectory.tool_results:
        asked = result.call.arguments.get("query")
        if not isinstance(asked, str) or not (query := well_formed(asked).strip()):  # the tool searched for nothing
            continue
        if result.passages:
            for number, page in enumerate(engine.pages_of(query, trajectory.question.hidden), start=1):
                yield SearchRecord(
                    trajectory.question,
                    query,
                    tuple(page),
                    number,
                    trajectory=trajectory.id,
                    earlier=tuple(dict.fromkeys(earlier)),
                )
        earlier.append(query)


class PagingEngine:
    """Asks `engine` for `pages` pages of results at once, gives the first of them and keeps all.

    `pages_of` gives what was found for a query, page by page. Where documents are hidden, a query is asked again for
    more.
    """

    def __init__(self, engine: SearchEngine, pages: int) -> None:
        self._engine, self._pages, self.is_local = engine, pages, engine.is_local
        self._found: dict[str, tuple[int, list[Passage]]] = {}  # the size of a page, and all that was found

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The first page, of k passages. Raises ToolError."""
        results = await self._engine.search(queries, k * self._pages)
        for query, found in zip(queries, results, strict=True):
            size, most = self._found.get(query, (k, []))
            self._found[query] = (min(size, k), max(most, found, key=len))
        return [found[:k] for found in results]

    def pages_of(self, query: str, hidden: Collection[str] = ()) -> list[list[Passage]]:
        """The pages of a query that was searched for, without empty ones and without documents that are `hidden`."""
        size, found = self._found[query]
        shown = outside(found, hidden)[: size * self._pages]
        return [shown[start : start + size] for start in range(0, len(shown), size)]
