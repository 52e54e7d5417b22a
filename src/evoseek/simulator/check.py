"""The quality of a simulated search engine: whether it obeys, and whether its results resemble the real engine's.

Held-out queries, of searches in a real engine that the simulator was not tuned on, are each given to it twice: once for
useful documents, once for noisy ones.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

import numpy as np
from scipy.spatial.distance import jensenshannon

from evoseek.errors import DataError, ToolError
from evoseek.eval.evaluate import Score
from evoseek.eval.statistics import Interval, bootstrap_mean_interval, wilson_interval
from evoseek.protocols import Chat
from evoseek.search.simulated import SimulatorPrompt, parse_documents
from evoseek.simulator.records import SearchRecord, document_texts
from evoseek.simulator.truth import Claims, ClaimSource

DocumentKind = Literal["useful", "noisy"]
KINDS: tuple[DocumentKind, ...] = ("useful", "noisy")


@dataclass(frozen=True, slots=True)
class SimulatorCheck:
    """A finished check. `readable`: replies that came and could be read. `stating`: replies whose documents state an
    answer, by what is stated (see `evoseek.simulator.truth`); unreadable ones count as invalid. `style` has
    `real`, `useful` and `noisy`. `unasked` queries were left out since nothing can be said of their answers; `problems`
    are the reasons why replies were unreadable."""

    readable: Mapping[DocumentKind, Score]
    stating: Mapping[DocumentKind, Mapping[str, Score]]
    style: Mapping[str, Style]
    unasked: int
    problems: tuple[str, ...]


class _Query(NamedTuple):
    number: int  # of its record in the file
    record: SearchRecord
    claims: Claims


class _Reply(NamedTuple):
    texts: Sequence[str] | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _Simulator:
    """A model with its prompt, and the form of the documents that it is asked for."""

    chat: Chat
    prompt: SimulatorPrompt
    documents: int
    max_words: int

    async def reply(self, query: _Query, kind: DocumentKind) -> _Reply:
        """What it gives for a query; of a call that fails, the reason."""
        record = query.record
        messages = self.prompt(
            question=record.question.text,
            answers=record.question.golden_answers,
            query=record.query,
            earlier=record.earlier,
            useful=kind == "useful",
            documents=self.documents,
            max_words=self.max_words,
        )
        try:
            reply = await self.chat.chat(messages, key=f"check/{kind}/{query.number}")
            return _Reply(parse_documents(reply, self.documents, self.max_words))
        except ToolError as error:
            return _Reply(None, str(error))


async def check_simulator(
    chat: Chat,
    prompt: SimulatorPrompt,
    records: Sequence[SearchRecord],
    truth: ClaimSource,
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
    simulator, done = _Simulator(chat, prompt, documents, max_words), itertools.count(1)

    async def ask(query: _Query, kind: DocumentKind) -> _Reply:
        try:
            return await simulator.reply(query, kind)
        finally:
            progress(next(done), len(KINDS) * len(drawn))

    replies = await asyncio.gather(*(ask(query, kind) for kind in KINDS for query in drawn))
    texts = [reply.texts for reply in replies]
    by_kind: dict[DocumentKind, list[Sequence[str] | None]] = {
        "useful": texts[: len(drawn)],
        "noisy": texts[len(drawn) :],
    }
    return SimulatorCheck(
        readable={kind: _score([one is not None for one in found]) for kind, found in by_kind.items()},
        stating={kind: _stating(drawn, found) for kind, found in by_kind.items()},
        style=styles(
            [document_texts(query.record, documents, max_words) for query in drawn],
            {str(kind): found for kind, found in by_kind.items()},
        ),
        unasked=unasked,
        problems=tuple(reply.problem for reply in replies if reply.problem),
    )


def _draw(records: Sequence[SearchRecord], truth: ClaimSource, count: int, seed: int) -> tuple[list[_Query], int]:
    """Queries to ask, in random order, each of a question's once; and how many of the first pages were left out."""
    first: dict[tuple[str, str, str], _Query] = {}
    for number, record in enumerate(records, start=1):
        if record.page == 1:
            question = record.question
            first.setdefault((question.id, question.text, record.query), _Query(number, record, truth.claims(record)))
    usable = [query for query in first.values() if query.claims]
    if not usable:
        raise DataError(
            f"Of the {len(first)} different queries not one can be checked: nothing can be said of their answers. Give "
            "searches of the world whose card is given, or leave the world out."
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


REAL = "real"

_WORD = re.compile(r"\w+")


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


def styles(real: Sequence[Sequence[str]], written: Mapping[str, Sequence[Sequence[str] | None]]) -> Mapping[str, Style]:
    """That of the real engine's documents, by the name `real`, and those of replies (None: unreadable) to the same
    queries. The divergences are of the first half of the queries, against the real documents of the second."""
    half = len(real) // 2
    others = [text for texts in real[half:] for text in texts]
    return {name: _style(found, half, others) for name, found in {REAL: real, **written}.items()}


def divergence(left: Iterable[str], right: Iterable[str]) -> float:
    """Jensen-Shannon divergence of the words of two sets of texts, in bits; nan if one has no words."""
    counts = [Counter(word for text in texts for word in _words(text)) for texts in (left, right)]
    if not all(counts):
        return float("nan")
    vocabulary = sorted(counts[0] | counts[1])
    distributions = [np.array([count[word] for word in vocabulary], dtype=float) for count in counts]
    return float(cast("float", jensenshannon(*distributions, base=2))) ** 2


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
