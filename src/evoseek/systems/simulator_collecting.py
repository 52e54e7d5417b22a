"""What a search engine gives for the queries that a policy makes: the first step to a simulated one (ZeroSearch,
arXiv 2505.04588, section 3.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from evoseek.policy.encoding import well_formed
from evoseek.rollout.player import Player
from evoseek.search.paging import PagingEngine
from evoseek.systems.search_records import SearchRecord
from evoseek.types import Question, Trajectory


@dataclass(frozen=True, slots=True)
class Collection:
    """The records, how many rollouts they come from, and why others failed (they give no record)."""

    records: tuple[SearchRecord, ...]
    rollouts: int
    failures: tuple[str, ...]


async def collect(
    questions: Sequence[Question],
    player: Player,
    engine: PagingEngine,
    *,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Collection:
    """Roll a policy out once on every question, all at once, and keep what its searches found.

    `engine` is the one that the player searches with. A record for each query and page; the same query of the same
    question once. `progress` is told how many rollouts are done.
    """
    done = 0

    async def play(question: Question) -> Trajectory:
        nonlocal done
        trajectory = await player.play(question, f"collect/{question.id}")
        done += 1
        progress(done, len(questions))
        return trajectory

    trajectories = await asyncio.gather(*(play(question) for question in questions))
    valid = [trajectory for trajectory in trajectories if not trajectory.stop_reason.is_failure]
    found: dict[tuple[str, str, int], SearchRecord] = {}
    for record in (record for trajectory in valid for record in _records(trajectory, engine)):
        found.setdefault((record.question.id, record.query, record.page), record)
    return Collection(
        tuple(found.values()),
        len(valid),
        tuple(t.failure or "" for t in trajectories if t.stop_reason.is_failure),
    )


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
