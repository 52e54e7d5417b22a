"""Demonstrations of answering questions about the manual: each hop's search, then the answer."""

from __future__ import annotations

from itertools import pairwise

from evoseek.corpus.demonstrations import DemonstratedTurn, Demonstration
from evoseek.manual.questions import Asked


def demonstrate(asked: Asked) -> Demonstration:
    """Search for every hop in turn, say what was found, answer."""
    last = asked.hops[-1]
    turns = [DemonstratedTurn(query=asked.hops[0].query)]
    turns += [DemonstratedTurn(hop.finding, query=following.query) for hop, following in pairwise(asked.hops)]
    turns.append(DemonstratedTurn(last.finding, answer=last.answer))
    return Demonstration(asked.question, tuple(turns))
