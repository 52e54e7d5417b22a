"""Penalties that are added to a reward in training, and the reward before them."""

from __future__ import annotations

from evoseek.types import Scored

UNSHAPED = "unshaped"


def shaped(outcome: Scored, name: str, penalty: float) -> Scored:
    """With a penalty (a number <= 0) added, which is the part `name`; the part `unshaped` is the reward before any."""
    return Scored(outcome.reward + penalty, {**outcome.parts, UNSHAPED: unshaped(outcome), name: penalty})


def unshaped(outcome: Scored) -> float:
    """The reward before all penalties: filters judge a group's rollouts by it."""
    return outcome.parts.get(UNSHAPED, outcome.reward)
