"""The quality of a simulated search engine: whether it follows its instructions.

The simulator gets each held-out query, from searches of a real engine that it was not tuned on, twice: once for useful
documents, once for noisy ones.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import TypeAdapter
from rich.console import Console
from rich.table import Table

from evoseek.errors import DataError, EvoseekError, ToolError
from evoseek.eval.results import Score
from evoseek.eval.statistics import wilson_interval
from evoseek.eval.tables import score_text
from evoseek.storage.files import write_atomic
from evoseek.systems.zerosearch.engine import SimulatedEngine, parse_documents, simulator_messages
from evoseek.systems.zerosearch.searches import SearchRecord, load_records
from evoseek.systems.zerosearch.system import ZeroSearch
from evoseek.text.normalization import comparable
from evoseek.text.printable import for_example, say, say_left_out
from evoseek.text.progress import CountProgress
from evoseek.world.grammar import asked_fact, states
from evoseek.world.world import World, load_world

Claims = Mapping[str, Callable[[Sequence[str]], bool]]
"""The statements that may answer a query, by name, each with a check whether texts state it."""

ClaimSource = Callable[[SearchRecord], Claims]
"""The claims that would answer a record's query; {} if its answers cannot be checked."""


def golden_claims(record: SearchRecord) -> Claims:
    """Return `golden answer`: a document contains the question's golden answer, as whole words in the normal form of
    exact match. Nothing if the normal form is empty.

    A query for an earlier link of a multi-hop question may be answered without it.
    """
    wanted = [golden for answer in record.question.golden_answers if (golden := comparable(answer))]
    return {"golden answer": partial(_holds_any, wanted)} if wanted else {}


def world_claims(world: World) -> ClaimSource:
    """Return claims for questions about a generated world, where a query asks for one fact: some sentence states it.
    Nothing for a query that does not ask for one of the question's facts.

    The last link of the question's chain must be the golden answer. For an earlier link there are three cases: some
    object is stated, the true one, or the golden answer. A simulator knows only the golden answer and must invent an
    object. So the first case measures whether it answers when it should and hides an answer when it should not; the
    last measures whether it leaks the golden answer. It also leaks it if the last relation is asked of another subject,
    for which a real engine finds nothing (unless a simulator invented that subject on the way).
    """
    oracle = cache(world.oracle)

    def claims(record: SearchRecord) -> Claims:
        fact, truth = asked_fact(record.query), oracle(record.question.text)
        if fact is None or truth is None:
            return {}

        def stating(objects: Sequence[str] | None) -> Callable[[Sequence[str]], bool]:
            return lambda texts: states(texts, *fact, objects)

        golden = stating(record.question.golden_answers)
        earlier = {(link.subject.casefold(), link.relation): link.object for link in truth.chain[:-1]}
        if fact in earlier:
            return {
                "earlier link, some object": stating(None),
                "earlier link, true object": stating([earlier[fact]]),
                "earlier link, golden answer": golden,
            }
        last = truth.chain[-1]
        if fact == (last.subject.casefold(), last.relation):
            return {"last link, golden answer": golden}
        if fact[1] == last.relation:
            return {"last relation of another, golden answer": golden}
        return {}

    return claims


def _holds_any(wanted: Sequence[str], texts: Sequence[str]) -> bool:
    return any(f" {golden} " in f" {comparable(text)} " for text in texts for golden in wanted)


DocumentKind = Literal["useful", "noisy"]
KINDS: tuple[DocumentKind, ...] = ("useful", "noisy")


@dataclass(frozen=True, slots=True)
class SimulatorCheck:
    """A finished check. `readable`: replies that could be read. `stating`: replies whose documents state an answer, by
    claim (see the module); unreadable ones count as invalid. `unasked` queries were left out, since their answers
    cannot be checked; `problems` are the reasons for unreadable replies."""

    readable: Mapping[DocumentKind, Score]
    stating: Mapping[DocumentKind, Mapping[str, Score]]
    unasked: int
    problems: tuple[str, ...]


class _Query(NamedTuple):
    number: int  # its record's number in the file
    record: SearchRecord
    claims: Claims


async def check_simulator(
    engine: SimulatedEngine,
    records: Sequence[SearchRecord],
    claims_of: ClaimSource,
    *,
    count: int,
    documents: int,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> SimulatorCheck:
    """Ask for useful and for noisy documents for `count` of the records' queries, at most all.

    Only first pages are used. Raises DataError if no query's answer can be checked.
    """
    drawn, unasked = _draw(records, claims_of, count, engine.seed)
    done, max_words = itertools.count(1), engine.max_words

    async def ask(query: _Query, kind: DocumentKind) -> Sequence[str] | ToolError:
        record = query.record
        messages = simulator_messages(
            *(engine.prompts, record.question, record.query, record.earlier),
            useful=kind == "useful",
            documents=documents,
            max_words=max_words,
        )
        try:
            reply = await engine.chat.chat(messages, key=f"check/{kind}/{query.number}")
            return parse_documents(reply, documents, max_words)
        except ToolError as error:
            return error
        finally:
            progress(next(done), len(KINDS) * len(drawn))

    replies = await asyncio.gather(*(ask(query, kind) for kind in KINDS for query in drawn))
    texts = [None if isinstance(reply, ToolError) else reply for reply in replies]
    by_kind = dict(zip(KINDS, (texts[: len(drawn)], texts[len(drawn) :]), strict=True))
    return SimulatorCheck(
        readable={kind: _score([one is not None for one in found]) for kind, found in by_kind.items()},
        stating={kind: _stating(drawn, found) for kind, found in by_kind.items()},
        unasked=unasked,
        problems=tuple(str(reply) for reply in replies if isinstance(reply, ToolError)),
    )


def _draw(records: Sequence[SearchRecord], claims_of: ClaimSource, count: int, seed: int) -> tuple[list[_Query], int]:
    """Return the queries to ask, in random order, each once a question; and the number of first pages left out."""
    first: dict[tuple[str, str, str], _Query] = {}
    for number, record in enumerate(records, start=1):
        if record.page == 1:
            question = record.question
            first.setdefault((question.id, question.text, record.query), _Query(number, record, claims_of(record)))
    usable = [query for query in first.values() if query.claims]
    if not usable:
        raise DataError(
            f"None of the {len(first)} different queries has an answer that can be checked. Give searches of the world "
            "whose card is given, or leave the world out."
        )
    drawn = random.Random(f"{seed}/simulator check").sample(usable, min(count, len(usable)))
    return drawn, len(first) - len(usable)


def _stating(drawn: Sequence[_Query], found: Sequence[Sequence[str] | None]) -> dict[str, Score]:
    stated: dict[str, list[bool | None]] = {}
    for query, texts in zip(drawn, found, strict=True):
        for name, says in query.claims.items():
            stated.setdefault(name, []).append(None if texts is None else says(texts))
    return {name: _score(stated[name]) for name in sorted(stated)}


def _score(values: Sequence[bool | None]) -> Score:
    known = [value for value in values if value is not None]
    mean = sum(known) / len(known) if known else float("nan")
    return Score(mean, wilson_interval(sum(known), len(known)), len(values), len(values) - len(known))


def check(
    settings: ZeroSearch.Settings,
    engine: SimulatedEngine,
    source: Path,
    *,
    world: Path | None,
    count: int,
    output: Path | None,
    console: Console,
) -> None:
    """Check the settings' simulator on held-out searches; print the results, and optionally write them as JSON.

    Raises EvoseekError if no reply could be read.
    """
    records = load_records(source, notify=lambda text: say(console, text))
    claims_of = golden_claims if world is None else world_claims(load_world(world))
    with CountProgress(console, "replies") as progress:
        documents = settings.search.top_k
        work = check_simulator(engine, records, claims_of, count=count, documents=documents, progress=progress)
        checked = asyncio.run(work)
    if all(score.mean == 0 for score in checked.readable.values()):
        raise EvoseekError(f"No reply of {engine.chat.name} could be read. {for_example(checked.problems)}")
    if checked.unasked:
        say(console, f"{checked.unasked} queries were left out: their answers cannot be checked.")
    console.print(compliance_table(checked))
    say_left_out(console, "replies could not be read", checked.problems)
    if output is not None:
        asked = {
            "simulator": engine.chat.name,
            "searches": str(source),
            "documents": documents,
            "max_words": engine.max_words,
            "temperature": settings.simulator.temperature,
            "seed": engine.seed,
        }
        found: dict[str, object] = json.loads(TypeAdapter(SimulatorCheck).dump_json(checked))  # nan as null
        write_atomic(output, json.dumps({**asked, **found}, indent=1) + "\n")


def compliance_table(check: SimulatorCheck) -> Table:
    """Show how often replies can be read, and what they state, if asked for useful documents and for noisy ones."""
    table = Table("replies", *KINDS, title="What the simulator was asked for, 95 % intervals")
    table.add_row("can be read", *(score_text(check.readable[kind]) for kind in KINDS))
    for name in check.stating[KINDS[0]]:
        table.add_row(f"state: {name}", *(score_text(check.stating[kind][name]) for kind in KINDS))
    return table
