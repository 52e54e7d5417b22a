"""The results of a step's searches: an engine that finds nothing for any rollout has failed, whatever it reports.

An engine that is down raises an error, and the rollout ends Invalid. One that has lost its index answers every query
with an empty list: each rollout is then scored, mostly as wrong, and would be trained on; in self-play it would even
pay the proposer. A single rollout cannot distinguish this from a query that matches nothing; those of a whole step can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from evoseek.rollout.calls import NO_TOOL
from evoseek.types import Invalid, StopReason, ToolCall, ToolResult, Trajectory, TrajectoryGroup

_ENOUGH = 10  # number of searches that distinguishes a broken engine from queries that match nothing
_SHOWN = 80  # characters of a query


def searches(trajectories: Sequence[Trajectory]) -> list[ToolResult]:
    """The results of calls that asked an engine for something: `search` or `web_search`, with a query, where the
    rollout has that tool."""
    results = (result for trajectory in trajectories for result in trajectory.tool_results if _query(result.call))
    return [result for result in results if result.passages or not result.text.startswith(NO_TOOL)]


def nothing_found(trajectories: Sequence[Trajectory]) -> Invalid | None:
    """The failure of an engine that found nothing in any search of these rollouts; None if it found something, or if
    there were fewer than ten searches."""
    made = searches(trajectories)
    if len(made) < _ENOUGH or any(result.passages for result in made):
        return None
    return Invalid(
        StopReason.TOOL_FAILED,
        f"The search engine found nothing in any of {len(made)} searches, the first for "
        f"{_query(made[0].call)[:_SHOWN]!r}. Its index is empty or lost, or what the policy searches for is not in it: "
        "try a query of your own",
    )


def as_failed(group: TrajectoryGroup, failure: Invalid) -> TrajectoryGroup:
    """The group with every outcome replaced by the failure."""
    return replace(group, outcomes=(failure,) * len(group.outcomes))


def failed_if_nothing_found(groups: Sequence[TrajectoryGroup]) -> list[TrajectoryGroup]:
    """The groups as they are; all Invalid where the engine found nothing for any of them."""
    failure = nothing_found([trajectory for group in groups for trajectory in group.trajectories])
    return [as_failed(group, failure) for group in groups] if failure else list(groups)


def _query(call: ToolCall) -> str:
    """The query of a call; "" if it is no search, or has no query."""
    if call.name == "search":
        queries: object = [call.arguments.get("query")]
    else:
        queries = call.arguments.get("queries") if call.name == "web_search" else None
    texts = cast("list[object]", queries) if isinstance(queries, list) else []
    return next((text.strip() for text in texts if isinstance(text, str)), "")
