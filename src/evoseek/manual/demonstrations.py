"""Demonstrations of answering questions about the manual: each hop's search, then the answer."""

from __future__ import annotations

from itertools import pairwise
from typing import NotRequired, TypedDict

from evoseek.manual.questions import Asked


class Turn(TypedDict):
    """A turn of a demonstration: a thought, and a query or the answer."""

    think: NotRequired[str]
    query: NotRequired[str]
    answer: NotRequired[str]


class Demonstration(TypedDict):
    """A row of a file of demonstrations, as `evoseek sft` reads it."""

    id: str
    question: str
    golden_answers: list[str]
    turns: list[Turn]


def demonstrate(asked: Asked) -> Demonstration:
    """Search for every hop in turn, say what was found, answer."""
    turns: list[Turn] = [{"query": asked.hops[0].query}]
    for hop, following in pairwise(asked.hops):
        turns.append({"think": hop.finding, "query": following.query})
    turns.append({"think": asked.hops[-1].finding, "answer": asked.hops[-1].answer})
    golden = list(asked.question.golden_answers)
    return {"id": asked.question.id, "question": asked.question.text, "golden_answers": golden, "turns": turns}
