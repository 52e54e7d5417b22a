"""Searches of a real engine, from which a simulated one learns (ZeroSearch, arXiv 2505.04588, section 3.2).

They are collected from rollouts of a policy, and labelled as useful or noisy: by a judge, or in a generated world by
its facts. Useful means that a reader of the passages can answer the query (in the paper for each document, here for all
that were shown together, as a simulator will write them).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StrictBool,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)
from rich.console import Console

from evoseek.assembly.context import Context
from evoseek.assembly.inputs import default_identity, identity, inputs_of, read_questions
from evoseek.config.sections import lookup
from evoseek.curation.batches import BatchWork, Made
from evoseek.errors import ConfigError, DataError, EvoseekError, ToolError, first_problem
from evoseek.protocols import Chat, SearchEngine
from evoseek.questions.questions import parse_question, question_row
from evoseek.reward.judge import parse_verdict, verdict_form
from evoseek.rollout.prompts import PromptSet
from evoseek.rollout.roller import Roller
from evoseek.search.calling import outside
from evoseek.storage.files import write_atomic
from evoseek.storage.runs import with_digests
from evoseek.text.printable import for_example, say, say_left_out
from evoseek.text.rows import read_rows
from evoseek.text.scripts import well_formed
from evoseek.types import Message, Passage, Question, Trajectory
from evoseek.world.grammar import states
from evoseek.world.world import World, load_world

FORM = verdict_form("useful")
COLLECTED, LABELLED = 64, 128  # rollouts, and searches, processed concurrently and recorded together


def _question(row: Any, info: ValidationInfo) -> Any:
    return parse_question(row, str(info.context)) if isinstance(row, dict) else row


def _with_document(row: Any) -> Any:
    return {**row, "document_id": row.get("id")} if isinstance(row, dict) else row


_Question = Annotated[Question, BeforeValidator(_question), PlainSerializer(question_row)]
_Passage = Annotated[Passage, BeforeValidator(_with_document)]


@dataclass(frozen=True, slots=True)
class SearchRecord:
    """A query of a rollout, and what an engine found for it, best first.

    The policy saw only page 1; later pages continue the results. `useful`: whether the passages suffice to answer the
    query; None if not labelled yet. `trajectory` is the id of the rollout, `earlier` its other queries before.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    question: _Question
    query: str
    passages: Annotated[tuple[_Passage, ...], Field(min_length=1)]
    page: Annotated[int, Field(ge=1)] = 1
    useful: StrictBool | None = None
    trajectory: str = ""
    earlier: tuple[str, ...] = ()


_RECORD = TypeAdapter(SearchRecord)
_HIDDEN = {"passages": {"__all__": {field.name for field in fields(Passage)} - {"id", "title", "text"}}}


def document_text(passage: Passage) -> str:
    """Return a passage in the form of a simulated document, in one line: the title, unless the text begins with it, and
    the text."""
    title, text = " ".join(passage.title.split()), " ".join(passage.text.split())
    return text if text.casefold().startswith(title.casefold()) else f"{title.rstrip('.')}. {text}"


def document_texts(record: SearchRecord, documents: int, max_words: int) -> list[str]:
    """Return a record's first passages as a simulated engine writes them: `documents` of at most `max_words` words."""
    words = (document_text(passage).split() for passage in record.passages[:documents])
    return [" ".join(text[:max_words]) for text in words]


def save_records(path: Path, records: Iterable[SearchRecord]) -> None:
    """Write a file for `load_records`. Raises RunError if the disk refuses it."""
    write_atomic(path, "".join(json.dumps(record_row(record), ensure_ascii=False) + "\n" for record in records))


def load_records(path: Path, *, notify: Callable[[str], None] = lambda text: None) -> list[SearchRecord]:
    """Load the records of a file, in order, each once; report repetitions, as in concatenated files, to `notify`.

    Raises DataError, naming file and line, if the file cannot be read, holds none, or has a line that is not a record.
    """
    records = read_rows(path, _record, noun="search", keys="`question`, `query`, `passages`, `page` and `trajectory`")
    distinct: dict[str, SearchRecord] = {}
    for record in records:
        distinct.setdefault(json.dumps(record_row(record), sort_keys=True), record)
    if repeated := len(records) - len(distinct):
        notify(f"{repeated} of the {len(records)} searches in {path} repeat an earlier one and are left out.")
    return list(distinct.values())


def record_row(record: SearchRecord) -> dict[str, object]:
    """Return the JSON values of a record, with the id, title and text of each passage."""
    return _RECORD.dump_python(record, exclude_none=True, exclude=_HIDDEN)


def _record(row: Mapping[str, object], number: int) -> SearchRecord:
    try:
        return _RECORD.validate_python(row, context=number)
    except ValidationError as error:
        raise DataError(
            f"{first_problem(error)}. Expected a search as `evoseek simulator collect` "
            "writes it: question, query, passages, page, trajectory, and useful once labelled. Correct or delete "
            "the line."
        ) from error


def collecting(roller: Roller, engine: PagingEngine) -> BatchWork[Question, Trajectory]:
    """Return the work that rolls a policy out once on each question, and records the results of its searches.

    `engine` is the roller's engine. Each query and page gives a record; equal queries of a question one. It counts
    records by page (as text, for JSON).
    """

    async def play(question: Question, _: int) -> Trajectory:
        return await roller.one(question, f"collect/{question.id}")

    def made_of(trajectories: Sequence[Trajectory]) -> Made:
        records = [record for trajectory in trajectories for record in _found_by(trajectory, engine)]
        failures = [trajectory.failure or "" for trajectory in trajectories if trajectory.stop_reason.is_failure]
        pages = Counter(str(record.page) for record in records)
        return Made(map(record_row, records), pages, failures, len(trajectories))

    return BatchWork(play, made_of, COLLECTED, "rollouts")


def collect_searches(
    context: Context,
    out: Path,
    *,
    pages: int,
    limit: int | None,
    console: Console,
) -> bool:
    """Roll a policy out on its settings' questions and record its search results, `pages` pages of each. A second call
    resumes.

    Returns False if Ctrl-C ended it. Raises ConfigError if `out` is another file or cannot be made; EvoseekError
    without any search.
    """
    settings = context.settings
    if any(getattr(tool, "context", 0) for tool in settings.tools):
        raise ConfigError(
            "The tool search sends words before the query (context), which a simulator does not get. Set its "
            "context to 0 in tools."
        )
    engine = PagingEngine(cast("SearchEngine", context.engine), pages)
    path, reward = lookup(settings, "questions.path") or "", settings.reward.name
    questions = read_questions(path, setting="questions.path", reward=reward)[:limit]
    begun_with = {**identity(settings, context.checkpoint), "pages": pages, "limit": limit}
    work = collecting(context.solver(engine), engine)
    collected = work.run(questions, out, begun_with, console, defaults=default_identity(settings))
    if collected is None:
        return False
    say_left_out(console, "rollouts failed and give no searches", collected.failures)
    if not collected.counts:
        raise EvoseekError(
            f"Nothing was collected: no search in {len(questions)} rollouts of {context.agent.policy.name} found "
            "anything. Use a policy that searches, and an index of what the questions are about."
        )
    found = ", ".join(f"{count} on page {page}" for page, count in sorted(collected.counts.items()))
    say(console, f"{len(questions)} rollouts. Searches in {out}: {found}.")
    return True


def _found_by(trajectory: Trajectory, engine: PagingEngine) -> Iterable[SearchRecord]:
    """Return each query and page once; nothing of a failed rollout."""
    found: dict[tuple[str, int], SearchRecord] = {}
    for record in () if trajectory.stop_reason.is_failure else _records(trajectory, engine):
        found.setdefault((record.query, record.page), record)
    return found.values()


def _records(trajectory: Trajectory, engine: PagingEngine) -> Iterator[SearchRecord]:
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
    """An engine that fetches `pages` pages of results from `engine` in one query, returns the first and keeps all.

    `pages_of` returns the results of a query, page by page. If documents are hidden, a query is repeated for more.
    """

    def __init__(self, engine: SearchEngine, pages: int) -> None:
        self._engine, self._pages, self.is_local = engine, pages, engine.is_local
        self._found: dict[str, tuple[int, list[Passage]]] = {}  # the size of a page, and all results

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return the first page, of k passages. Raises ToolError."""
        results = await self._engine.search(queries, k * self._pages)
        for query, found in zip(queries, results, strict=True):
            size, most = self._found.get(query, (k, []))
            self._found[query] = (min(size, k), max(most, found, key=len))
        return [found[:k] for found in results]

    def pages_of(self, query: str, hidden: Collection[str] = ()) -> list[list[Passage]]:
        """Return the pages of an earlier query, without empty ones and without `hidden` documents."""
        size, found = self._found[query]
        shown = outside(found, hidden)[: size * self._pages]
        return [shown[start : start + size] for start in range(0, len(shown), size)]


Label = Callable[[SearchRecord, str], Awaitable[bool]]
"""Labels whether a record's passages are useful. The text is a unique key for the call. Raises ToolError without a
label."""


def labelling(label: Label, *, max_failed: float = 1.0) -> BatchWork[SearchRecord, SearchRecord | ToolError]:
    """Return the work that labels records. Records without a label are left out, never guessed. It counts the `useful`
    and the `noisy` ones."""

    async def one(record: SearchRecord, number: int) -> SearchRecord | ToolError:
        try:
            return replace(record, useful=await label(record, f"label/{number}"))
        except ToolError as error:
            return error

    def made_of(results: Sequence[SearchRecord | ToolError]) -> Made:
        labelled = [result for result in results if isinstance(result, SearchRecord)]
        counts = Counter("useful" if record.useful else "noisy" for record in labelled)
        failures = [str(result) for result in results if isinstance(result, ToolError)]
        return Made(map(record_row, labelled), counts, failures, len(results))

    return BatchWork(one, made_of, LABELLED, "searches", max_failed)


def label_searches(context: Context, source: Path, out: Path, *, world: Path | None, console: Console) -> bool:
    """Label searches by the settings' judge, or by the facts if a world's card is given. A second call resumes.

    Returns False if Ctrl-C ended it. Raises EvoseekError, also without any label.
    """
    records = load_records(source, notify=lambda text: say(console, text))
    label, deciding = _make_label(context, world, records)
    begun_with = {"searches": sha256(source.read_bytes()).hexdigest(), **deciding}
    work = labelling(label, max_failed=context.settings.run.max_invalid)
    labelled = work.run(records, out, begun_with, console)
    if labelled is None:
        return False
    useful, noisy = (labelled.counts.get(name, 0) for name in ("useful", "noisy"))
    if not useful + noisy:
        raise EvoseekError(f"There is no label for any of {len(records)} searches. {for_example(labelled.failures)}")
    say_left_out(console, "searches have no label and are left out", labelled.failures)
    say(console, f"{useful + noisy} searches in {out}: {useful} useful, {noisy} noisy.")
    return True


def _make_label(
    context: Context, world: Path | None, records: Sequence[SearchRecord]
) -> tuple[Label, Mapping[str, object]]:
    if world is not None:
        label = TrueLabel(load_world(world))
        label.check(records)
        return label, {"world": world.read_text(encoding="utf-8")}
    settings = context.settings
    deciding = {"judge": {"model", "base_url", "max_tokens"}, "policy": {"prompts"}}
    judge = with_digests(settings.model_dump(include=deciding), inputs_of(settings))
    return JudgeLabel(*context.chat("judge")), {**judge, "seed": settings.run.seed}


class JudgeLabel:
    """A `Label` by a model, asked with simulator_label.jinja of a prompt set."""

    def __init__(self, chat: Chat, prompts: PromptSet) -> None:
        self._chat, self._template = chat, prompts["simulator_label"]

    async def __call__(self, record: SearchRecord, key: str) -> bool:
        values = {"question": record.question.text, "query": record.query, "passages": record.passages}
        messages = [Message("user", self._template.marked(**values))]
        return parse_verdict(await self._chat.chat(messages, key=key, form=FORM), ("useful", "noisy"))


class TrueLabel:
    """A `Label` by the records' world: useful if every fact that the query asks for is stated.

    For a query without an answer there (an unknown name, or a relation that its subject lacks) the first page is
    useful, as the best available. Such examples teach a simulator that such queries lead nowhere. Without them it
    states the golden answer for every subject of a query, and a policy soon queries for it directly, skipping the
    earlier links, which no real engine would answer.
    """

    def __init__(self, world: World) -> None:
        self._world = world

    def check(self, records: Sequence[SearchRecord]) -> None:
        """Raise DataError if none of the records' questions has its golden answer in this world: in the wrong world
        every search is noise."""
        if not any(self._is_true(record) for record in records):
            raise DataError(
                f"No question of the {len(records)} searches has its golden answer in the given world, so they come "
                "from another one. Give the world.json beside the index of these searches, or leave the world out and "
                "name a judge."
            )

    async def __call__(self, record: SearchRecord, key: str) -> bool:
        truth = self._world.oracle(record.query) or self._world.oracle(f"What is {record.query}?")
        if truth is None:
            return record.page == 1
        texts = [passage.text for passage in record.passages]
        return all(states(texts, fact.subject, fact.relation, [fact.object]) for fact in truth.chain)

    def _is_true(self, record: SearchRecord) -> bool:
        truth = self._world.oracle(record.question.text)
        return truth is not None and truth.answer in record.question.golden_answers
