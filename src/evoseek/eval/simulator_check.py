"""How good a simulated search engine is: does it do as it is told, and does it read like the real one?

Held-out queries, of searches in a real engine that the simulator was not tuned on, are each put to it twice: once for
useful documents, once for noisy ones. How a policy fares that was trained with it is measured by evaluating the policy.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, Protocol, cast

import numpy as np
from scipy.spatial.distance import jensenshannon

from evoseek.corpus.statements import asked_fact, states
from evoseek.corpus.world import Fact, World
from evoseek.errors import DataError, ToolError
from evoseek.eval.evaluate import Score
from evoseek.eval.statistics import Interval, bootstrap_mean_interval, wilson_interval
from evoseek.protocols import Chat
from evoseek.reward.answer import normalise
from evoseek.search.simulated import SimulatorPrompt, parse_documents
from evoseek.systems.search_records import SearchRecord, document_text

Kind = Literal["useful", "noisy"]
KINDS: tuple[Kind, ...] = ("useful", "noisy")
ALL = "all"

_WORD = re.compile(r"\w+")


class Truth(Protocol):
    """What it means that documents hold the answer to a query."""

    def group(self, record: SearchRecord) -> str | None:
        """What kind of query it is, for scores by kind; None if nothing can be said of its answers."""
        ...

    def holds(self, record: SearchRecord, texts: Sequence[str]) -> bool:
        """Whether the documents hold the answer to the record's query."""
        ...


class GoldenTruth:
    """A document holds the question's golden answer, as whole words in the normal form of exact match.

    A query for an earlier link of a question of several hops may be answered without it.
    """

    def group(self, record: SearchRecord) -> str | None:
        """`golden answer`; None if its normal form is empty."""
        return "golden answer" if any(map(normalise, record.question.golden_answers)) else None

    def holds(self, record: SearchRecord, texts: Sequence[str]) -> bool:
        """Whether it stands there."""
        wanted = [golden for answer in record.question.golden_answers if (golden := normalise(answer))]
        return any(f" {golden} " in f" {normalise(text)} " for text in texts for golden in wanted)


class WorldTruth:
    """The same for questions about a generated world, where a query asks for one fact: some sentence states it.

    The last link of the question's chain has to be the golden answer. Of an earlier link whatever is said counts: a
    simulator that knows the golden answer alone has to invent it, and so to hide it when it is to be noisy.
    """

    def __init__(self, world: World) -> None:
        def chain(question: str) -> tuple[Fact, ...]:
            return world.oracle(question).chain

        self._chain = cache(chain)

    def group(self, record: SearchRecord) -> str | None:
        """`last link` or `earlier link`; None for a query that does not ask for one fact."""
        fact, chain = asked_fact(record.query), self._chain(record.question.text)
        if fact is None or not chain:
            return None
        earlier = {(link.subject.casefold(), link.relation) for link in chain[:-1]}
        return "last link" if fact[1] == chain[-1].relation and fact not in earlier else "earlier link"

    def holds(self, record: SearchRecord, texts: Sequence[str]) -> bool:
        """Whether a sentence states what is asked for."""
        fact = asked_fact(record.query)
        golden = record.question.golden_answers if self.group(record) == "last link" else None
        return fact is not None and states(texts, *fact, golden)


@dataclass(frozen=True, slots=True)
class Style:
    """Documents in a reply, their words with a 95 % interval of the mean, and how far the distribution of words is from
    the real engine's: Jensen-Shannon divergence in bits, 0 for the same and 1 for no word in common.

    It is measured against what the real engine found for other queries, and that of the real engine likewise, so both
    have the same number of queries and no subject in common: a good simulator has about the real engine's own.
    """

    documents: float
    words: float
    interval: Interval
    divergence: float


@dataclass(frozen=True, slots=True)
class SimulatorCheck:
    """A finished check. `readable`: replies that came and could be read. `holding`: replies whose documents hold the
    answer, by kind of query; unreadable ones count as invalid. `style` has `real`, `useful` and `noisy`. `unasked`
    queries were left out since nothing can be said of their answers; `problems` says of replies why they were not
    read."""

    readable: Mapping[Kind, Score]
    holding: Mapping[Kind, Mapping[str, Score]]
    style: Mapping[str, Style]
    unasked: int
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Reply:
    record: SearchRecord
    group: str
    texts: Sequence[str] | None
    problem: str = ""


async def check_simulator(
    chat: Chat,
    prompt: SimulatorPrompt,
    records: Sequence[SearchRecord],
    truth: Truth,
    *,
    count: int,
    documents: int,
    max_words: int,
    seed: int,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> SimulatorCheck:
    """Ask for useful and for noisy documents for `count` of the records' queries (all, if there are no more).

    Only first pages are looked at. Raises DataError if there is no query whose answer can be told.
    """
    drawn, unasked = _draw(records, truth, count, seed)
    done = 0

    async def ask(record: SearchRecord, group: str, kind: Kind) -> _Reply:
        nonlocal done
        messages = prompt(
            question=record.question.text,
            answers=record.question.golden_answers,
            query=record.query,
            useful=kind == "useful",
            documents=documents,
            max_words=max_words,
        )
        try:
            reply = await chat.chat(messages, key=f"check/{kind}/{record.question.id}/{record.query}")
            return _Reply(record, group, parse_documents(reply, documents, max_words))
        except ToolError as error:
            return _Reply(record, group, None, str(error))
        finally:
            done += 1
            progress(done, len(KINDS) * len(drawn))

    replies: dict[Kind, list[_Reply]] = {}
    asked = await asyncio.gather(*(ask(record, group, kind) for kind in KINDS for record, group in drawn))
    for number, kind in enumerate(KINDS):
        replies[kind] = list(asked[number * len(drawn) : (number + 1) * len(drawn)])
    return SimulatorCheck(
        readable={kind: _score([reply.texts is not None for reply in replies[kind]]) for kind in KINDS},
        holding={kind: _holding(replies[kind], truth) for kind in KINDS},
        style=_styles([record for record, _ in drawn], replies),
        unasked=unasked,
        problems=tuple(reply.problem for reply in asked if reply.problem),
    )


def divergence(left: Iterable[str], right: Iterable[str]) -> float:
    """Jensen-Shannon divergence of the words of two sets of texts, in bits; nan if one has no words."""
    counts = [Counter(word for text in texts for word in _words(text)) for texts in (left, right)]
    if not all(counts):
        return float("nan")
    vocabulary = sorted(counts[0] | counts[1])
    distributions = [np.array([count[word] for word in vocabulary], dtype=float) for count in counts]
    return float(cast("float", jensenshannon(*distributions, base=2))) ** 2


def _draw(
    records: Sequence[SearchRecord], truth: Truth, count: int, seed: int
) -> tuple[list[tuple[SearchRecord, str]], int]:
    """Records to ask about, each with its group, and how many of the first pages were left out."""
    first = {(record.question.id, record.query): record for record in records if record.page == 1}
    usable = [(record, group) for record in first.values() if (group := truth.group(record)) is not None]
    if not usable:
        raise DataError(
            f"Of the {len(first)} different queries not one can be checked: nothing can be said of their answers. Give "
            "searches of the world whose card is given, or leave the world out."
        )
    drawn = random.Random(f"{seed}/simulator check").sample(usable, min(count, len(usable)))
    return drawn, len(first) - len(usable)


def _holding(replies: Sequence[_Reply], truth: Truth) -> dict[str, Score]:
    groups: dict[str, list[bool | None]] = {ALL: []}
    for reply in replies:
        held = None if reply.texts is None else truth.holds(reply.record, reply.texts)
        groups[ALL].append(held)
        groups.setdefault(reply.group, []).append(held)
    return {name: _score(groups[name]) for name in (*sorted(groups.keys() - {ALL}), ALL)}


def _score(values: Sequence[bool | None]) -> Score:
    known = [value for value in values if value is not None]
    mean = sum(known) / len(known) if known else float("nan")
    return Score(mean, wilson_interval(sum(known), len(known)), len(values), len(values) - len(known))


def _styles(drawn: Sequence[SearchRecord], replies: Mapping[Kind, Sequence[_Reply]]) -> dict[str, Style]:
    """Those of the first half of the queries, against the real engine's documents for the second."""
    real = [[document_text(passage) for passage in record.passages] for record in drawn]
    written = {"real": real, **{kind: [reply.texts for reply in replies[kind]] for kind in KINDS}}
    half = len(drawn) // 2
    others = [text for texts in real[half:] for text in texts]
    return {name: _style(found, half, others) for name, found in written.items()}


def _style(found: Sequence[Sequence[str] | None], half: int, others: Sequence[str]) -> Style:
    came = [texts for texts in found if texts]
    if not came:
        return Style(float("nan"), float("nan"), Interval(0.0, float("inf")), float("nan"))
    words = [sum(len(_words(text)) for text in texts) / len(texts) for texts in came]
    return Style(
        documents=sum(map(len, came)) / len(came),
        words=sum(words) / len(words),
        interval=bootstrap_mean_interval(words),
        divergence=divergence([text for texts in found[:half] for text in texts or ()], others),
    )


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())
