"""A language model that plays the search engine (ZeroSearch, arXiv 2505.04588, section 3).

It is told the question, its golden answer, the query, and whether the documents are to be useful or noisy, and writes
them. What it is told reaches the solver in no other way than through these documents.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from evoseek.errors import ReplyError, ToolError
from evoseek.protocols import Chat, SearchEngine
from evoseek.types import Message, Passage, Question

_MARKER = re.compile(r"(?<!\w)[*_#]*document\s+(\d+)\s*:[*_]*", re.IGNORECASE)


class SimulatorPrompt(Protocol):
    """How a simulator is asked for documents."""

    def __call__(
        self, *, question: str, answers: Sequence[str], query: str, useful: bool, documents: int, max_words: int
    ) -> list[Message]:
        """The messages."""
        ...


@dataclass(slots=True)
class SimulatedEngine:
    """A `QuestionEngine`: `for_question` binds it to a rollout, so that no rollout is given another one's documents.

    `noise` is the probability that a query's documents are noisy; it may be changed between rollouts. A query's own
    draw follows from `seed`, the rollout's id and the number of the query in it. A reply that is cut or cannot
    be read is asked for once more. `counts` has `queries`, `noisy`, `repeated` (second replies) and `failed`.
    """

    chat: Chat
    prompt: SimulatorPrompt
    max_words: int
    seed: int
    noise: float = 0.0
    counts: Counter[str] = field(default_factory=Counter[str])

    def for_question(self, question: Question, trajectory_id: str) -> SearchEngine:
        """The engine of one rollout."""
        return _BoundEngine(self, question, trajectory_id)


@dataclass(slots=True)
class _BoundEngine:
    """Queries are numbered as they come: a rollout's calls of one turn are begun in their order."""

    engine: SimulatedEngine
    question: Question
    trajectory_id: str
    asked: int = 0

    @property
    def is_local(self) -> bool:
        return self.engine.chat.is_local

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        first, self.asked = self.asked, self.asked + len(queries)
        simulations = (self._simulate(query, first + i, k) for i, query in enumerate(queries))
        results = await asyncio.gather(*simulations, return_exceptions=True)  # none is left behind when one fails
        if failed := next((result for result in results if isinstance(result, BaseException)), None):
            raise failed
        return [result for result in results if not isinstance(result, BaseException)]

    async def _simulate(self, query: str, number: int, k: int) -> list[Passage]:
        engine, key = self.engine, f"{self.trajectory_id}/search-{number}"
        noisy = random.Random(f"{engine.seed}/noise/{key}").random() < engine.noise
        messages = engine.prompt(
            question=self.question.text,
            answers=self.question.golden_answers,
            query=query,
            useful=not noisy,
            documents=k,
            max_words=engine.max_words,
        )
        engine.counts.update(queries=1, noisy=noisy)
        try:
            texts = await self._documents(messages, key, k)
        except ToolError:
            engine.counts["failed"] += 1
            raise
        return [Passage(f"{key}/{i}", key, "", text) for i, text in enumerate(texts, start=1)]

    async def _documents(self, messages: list[Message], key: str, k: int) -> list[str]:
        engine = self.engine
        try:
            return parse_documents(await engine.chat.chat(messages, key=key), k, engine.max_words)
        except ReplyError:
            engine.counts["repeated"] += 1
        return parse_documents(await engine.chat.chat(messages, key=f"{key}/again"), k, engine.max_words)


def parse_documents(reply: str, count: int, max_words: int) -> list[str]:
    """The documents of a reply: `Document 1: ...`, `Document 2: ...`, to `count`, each of 1 to `max_words` words.

    Raises ReplyError for any other reply: fewer documents or more, another order, text before the first, an
    empty one, one that is too long.
    """
    before, *rest = _MARKER.split(reply)
    numbers, texts = rest[::2], [text.strip() for text in rest[1::2]]
    words = [len(text.split()) for text in texts]
    if before.strip() or numbers != [str(n) for n in range(1, count + 1)] or not all(0 < n <= max_words for n in words):
        shown = reply if len(reply) <= 200 else f"{reply[:200]}..."
        raise ReplyError(
            f"The simulated engine replied {shown!r}, with {len(texts)} documents of {words} words. Expected the "
            f'documents 1 to {count}, each after "Document 1:" and so on and of 1 to {max_words} words, and nothing '
            "else. Tune the simulator (evoseek simulator tune), take a larger model, or raise simulator.max_words or "
            "simulator.max_tokens."
        )
    return texts
