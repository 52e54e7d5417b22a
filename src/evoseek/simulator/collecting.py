"""Collecting a search engine's results for a policy's queries: the first step to a simulated engine (ZeroSearch, arXiv
2505.04588, section 3.2)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import cast

from rich.console import Console

from evoseek.corpus.resumable_jsonl import ResumableJsonl, open_growing_file
from evoseek.errors import EvoseekError
from evoseek.policy.encoding import well_formed
from evoseek.protocols import SearchEngine
from evoseek.report.printable import say, say_left_out
from evoseek.report.progress import STOPPING_AFTER_BATCH, CountProgress
from evoseek.rollout.roller import Roller
from evoseek.settings import lookup
from evoseek.simulator.records import SearchRecord, record_row
from evoseek.training.context import Context
from evoseek.training.inputs import identity
from evoseek.training.interrupt import stop_on_interrupt
from evoseek.training.sources import read_questions
from evoseek.types import Passage, Question, Trajectory

BATCH = 64  # rollouts that are made concurrently and recorded together


@dataclass(frozen=True, slots=True)
class Collected:
    """The progress of a file of searches: questions that were rolled out, queries that they made of the engine, records
    by page (as a text, for JSON), and why rollouts failed, which give no record (each reason, how often)."""

    done: int = 0
    queries: int = 0
    found: Mapping[str, int] = field(default_factory=dict[str, int])
    failures: Mapping[str, int] = field(default_factory=dict[str, int])


async def collect(
    questions: Sequence[Question],
    roller: Roller,
    engine: PagingEngine,
    file: ResumableJsonl,
    *,
    should_stop: Callable[[], bool] = lambda: False,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Collected:
    """Roll a policy out once on every question, those of a batch concurrently, and append the results of its searches
    to the file, which is resumed where it ends.

    `engine` is the one that the roller searches with. A record for each query and page; the same query of the same
    question once. `progress` is called with the number of finished rollouts.
    """
    collected = Collected(**file.reached)
    done = collected.done

    async def play(question: Question) -> Trajectory:
        nonlocal done
        trajectory = await roller.one(question, f"collect/{question.id}")
        done += 1
        progress(done, len(questions))
        return trajectory

    while collected.done < len(questions) and not should_stop():
        batch, before = questions[collected.done : collected.done + BATCH], engine.queries
        trajectories = await asyncio.gather(*map(play, batch))
        records = [record for trajectory in trajectories for record in _found_by(trajectory, engine)]
        collected = Collected(
            collected.done + len(batch),
            collected.queries + engine.queries - before,
            dict(Counter(collected.found) + Counter(str(record.page) for record in records)),
            dict(Counter(collected.failures) + Counter(t.failure or "" for t in trajectories if _failed(t))),
        )
        file.append_batch(map(record_row, records), asdict(collected))
    return collected


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
    engine = PagingEngine(cast("SearchEngine", context.engine), pages)
    questions = read_questions(lookup(settings, "questions.path") or "", setting="questions.path")[:limit]
    begun_with = {**identity(settings, context.checkpoint), "pages": pages, "limit": limit}
    with (
        open_growing_file(out, begun_with) as file,
        stop_on_interrupt(lambda: say(console, STOPPING_AFTER_BATCH)) as interrupted,
        CountProgress(console, "rollouts") as progress,
    ):
        collected = asyncio.run(
            collect(questions, context.solver(engine), engine, file, should_stop=interrupted, progress=progress)
        )
    if collected.done < len(questions):
        say(
            console,
            f"Stopped after {collected.done} of {len(questions)} rollouts. The same command resumes from there.",
        )
        return False
    say_left_out(console, "rollouts failed and give no searches", collected.failures)
    if not collected.found:
        raise EvoseekError(
            f"Nothing was collected: in {len(questions)} rollouts of {context.agent.policy.name} there was no search "
            "that found anything. Take a policy that searches, and an index that holds what the questions are about."
        )
    found = ", ".join(f"{count} on page {page}" for page, count in sorted(collected.found.items()))
    say(
        console,
        f"{len(questions)} rollouts made {collected.queries} queries of the engine. Searches in {out}: {found}.",
    )
    return True


def _failed(trajectory: Trajectory) -> bool:
    return trajectory.stop_reason.is_failure


def _found_by(trajectory: Trajectory, engine: PagingEngine) -> Iterable[SearchRecord]:
    """Each query and page once; nothing of a rollout that failed."""
    found: dict[tuple[str, int], SearchRecord] = {}
    for record in () if _failed(trajectory) else _records(trajectory, engine):
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
            for number, page in enumerate(engine.pages_of(query), start=1):
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

    `pages_of` gives what was found for a query, page by page. `queries` counts those that were sent to the engine.
    """

    def __init__(self, engine: SearchEngine, pages: int) -> None:
        self._engine, self._pages = engine, pages
        self._found: dict[str, list[list[Passage]]] = {}
        self.queries = 0

    @property
    def is_local(self) -> bool:
        """As for the engine."""
        return self._engine.is_local

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The first page, of k passages. Raises ToolError."""
        self.queries += len(queries)
        results = await self._engine.search(queries, k * self._pages)
        for query, found in zip(queries, results, strict=True):
            self._found[query] = [found[start : start + k] for start in range(0, len(found), k)]
        return [found[:k] for found in results]

    def pages_of(self, query: str) -> list[list[Passage]]:
        """The pages of a query that was searched for, without empty ones."""
        return self._found[query]
