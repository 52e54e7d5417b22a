"""Whether documents state the answer to a query."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Protocol

from evoseek.reward.answer import normalise
from evoseek.simulator.records import SearchRecord
from evoseek.world.grammar import asked_fact, states
from evoseek.world.world import Fact, World

Claims = Mapping[str, Callable[[Sequence[str]], bool]]
"""The statements that may answer a query, by name, each with a function that tells whether texts make it."""


class ClaimSource(Protocol):
    """Knows which statements would answer a query."""

    def claims(self, record: SearchRecord) -> Claims:
        """Those of a record's query; {} if nothing can be said of its answers."""
        ...


class GoldenTruth:
    """A document holds the question's golden answer, as whole words in the normal form of exact match.

    A query for an earlier link of a question of several hops may be answered without it.
    """

    def claims(self, record: SearchRecord) -> Claims:
        """`golden answer`; nothing if its normal form is empty."""
        wanted = [golden for answer in record.question.golden_answers if (golden := normalise(answer))]
        return {"golden answer": partial(_holds_any, wanted)} if wanted else {}


class WorldTruth:
    """The same for questions about a generated world, where a query asks for one fact: some sentence states it.

    The last link of the question's chain has to be the golden answer. For an earlier link, three cases are
    distinguished: some object is stated, the true one, or the golden answer. A simulator knows only the golden answer
    and can only invent an object. So the first measures whether it answers when it should and hides an answer when it
    should not; the last measures whether it leaks the golden answer. It does, too, where the last relation is asked of
    another subject, for which a real engine finds nothing (unless a simulator has invented that subject on the way).
    """

    def __init__(self, world: World) -> None:
        def chain(question: str) -> tuple[Fact, ...]:
            return world.oracle(question).chain

        self._chain = cache(chain)

    def claims(self, record: SearchRecord) -> Claims:
        """Of the link that is asked for; nothing for a query that does not ask for one of the question's."""
        fact, chain = asked_fact(record.query), self._chain(record.question.text)
        if fact is None or not chain:
            return {}
        golden = partial(_states, fact, record.question.golden_answers)
        earlier = {(link.subject.casefold(), link.relation): link.object for link in chain[:-1]}
        if fact in earlier:
            return {
                "earlier link, some object": partial(_states, fact, None),
                "earlier link, true object": partial(_states, fact, [earlier[fact]]),
                "earlier link, golden answer": golden,
            }
        if fact == (chain[-1].subject.casefold(), chain[-1].relation):
            return {"last link, golden answer": golden}
        if fact[1] == chain[-1].relation:
            return {"last relation of another, golden answer": golden}
        return {}


def _holds_any(wanted: Sequence[str], texts: Sequence[str]) -> bool:
    return any(f" {golden} " in f" {normalise(text)} " for text in texts for golden in wanted)


def _states(fact: tuple[str, str], objects: Sequence[str] | None, texts: Sequence[str]) -> bool:
    return states(texts, *fact, objects)
