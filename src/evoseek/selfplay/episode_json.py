"""An episode as a JSON object and back, as processes of one run hand it to each other; without texts and latencies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evoseek.rollout.trajectory_json import (
    group_from_json,
    group_to_json,
    outcome_from_json,
    outcome_to_json,
    question_from_json,
    question_to_json,
    trajectory_from_json,
    trajectory_to_json,
)
from evoseek.types import Episode, Invalid, Outcome, Trajectory


def episode_to_json(episode: Episode) -> dict[str, Any]:
    """The object of an episode."""
    return {
        "proposal": _pair_to_json(episode.proposer, episode.outcome),
        "question": episode.question and question_to_json(episode.question),
        "rejected": episode.rejected,
        "checks": [_pair_to_json(*check) for check in episode.checks],
        "solvers": episode.solvers and group_to_json(episode.solvers),
        "replaced": [_pair_to_json(*failed) for failed in episode.replaced],
    }


def episode_from_json(data: Mapping[str, Any]) -> Episode:
    """The episode of an object."""
    proposer, outcome = _pair_from_json(data["proposal"])
    replaced = map(_pair_from_json, data["replaced"])
    return Episode(
        proposer,
        outcome,
        data["question"] and question_from_json(data["question"]),
        data["rejected"],
        tuple(map(_pair_from_json, data["checks"])),
        data["solvers"] and group_from_json(data["solvers"]),
        tuple((failed, outcome) for failed, outcome in replaced if isinstance(outcome, Invalid)),
    )


def proposal_to_json(proposal: Trajectory) -> dict[str, Any]:
    """The object of a rollout of the proposer."""
    return trajectory_to_json(proposal, lambda _: "")


def _pair_to_json(trajectory: Trajectory, outcome: Outcome) -> list[Any]:
    return [proposal_to_json(trajectory), outcome_to_json(outcome)]


def _pair_from_json(pair: list[Any]) -> tuple[Trajectory, Outcome]:
    return trajectory_from_json(pair[0]), outcome_from_json(pair[1])
