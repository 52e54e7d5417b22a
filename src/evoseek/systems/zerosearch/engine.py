"""A language model that plays the search engine (ZeroSearch, arXiv 2505.04588, section 3).

It gets the question, its golden answer, the query, the rollout's earlier queries, and whether the documents should be
useful or noisy, and writes the documents. This information reaches the solver only through them.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evoseek.chat.chats import make_chat
from evoseek.errors import ConfigError, ReplyError, ToolError
from evoseek.protocols import Chat, SearchEngine
from evoseek.rollout.prompts import PromptSet
from evoseek.search.calling import all_of
from evoseek.storage.files import write_atomic
from evoseek.types import Message, Passage, Question
from evoseek.web.reading import DRESS

_NUMBERED = r"document\s+(\d+)[*_]*\s*:[*_]*"
# Marks without a document also match, without a number: otherwise the search would restart at each of them.
_MARKER = re.compile(rf"(?<!\S)[-*_#> ]*+(?:{_NUMBERED})?", re.IGNORECASE)
_MARKER_OF_LINE = re.compile(rf"^[-*_#> \t]*{_NUMBERED}", re.IGNORECASE | re.MULTILINE)
_SIMULATING: ContextVar[tuple[float, Counter[str]] | None] = ContextVar("simulating", default=None)
CARD = "simulator.json"
"""The card beside the weights of a tuned simulator: the number and length of its replies' documents."""
_LONGEST_QUERY = 400  # characters, as in web search engines
_CHARACTERS = 12  # maximum average of a word with its space


def simulator_messages(
    prompts: PromptSet,
    question: Question,
    query: str,
    earlier: Sequence[str],
    *,
    useful: bool,
    documents: int,
    max_words: int,
) -> list[Message]:
    """Return the prompt of a simulator, by simulator_useful.jinja or simulator_noisy.jinja. `earlier` are the rollout's
    other queries so far. The first 400 characters of each query are shown."""
    text = prompts["simulator_useful" if useful else "simulator_noisy"].marked(
        question=question.text,
        answers=question.golden_answers,
        query=query[:_LONGEST_QUERY],
        earlier=tuple(one[:_LONGEST_QUERY] for one in earlier),
        documents=documents,
        max_words=max_words,
    )
    return [Message("user", text)]


@dataclass(slots=True)
class SimulatedEngine:
    """A `QuestionEngine`: `for_question` binds it to a rollout, so that no rollout gets another one's documents.

    `noise` is the probability that a query's documents are noisy, outside of `simulating`. `seed`, the rollout's id and
    the query's number determine the draw; for an unanswerable question all documents are noisy. If a reply is cut or
    cannot be parsed, the model is called once more. `counts` has `queries`, `noisy`, `repeated` (second replies) and
    `failed`.
    """

    chat: Chat
    prompts: PromptSet
    max_words: int
    seed: int
    noise: float = 0.0
    counts: Counter[str] = field(default_factory=Counter[str])

    @contextmanager
    def simulating(self, noise: float) -> Generator[Counter[str]]:
        """Within the block, and in tasks begun in it, make documents this noisy; yield the counts of these queries
        alone. Blocks of several tasks may overlap in time."""
        counts = Counter[str]()
        token = _SIMULATING.set((noise, counts))
        try:
            yield counts
        finally:
            _SIMULATING.reset(token)

    @property
    def current(self) -> tuple[float, Counter[str]]:
        return _SIMULATING.get() or (self.noise, self.counts)

    def for_question(self, question: Question, trajectory_id: str) -> SearchEngine:
        return _BoundEngine(self, question, trajectory_id)


@dataclass(slots=True)
class _BoundEngine:
    """An engine of one rollout. Queries are numbered as they come: a turn's calls begin in their order."""

    engine: SimulatedEngine
    question: Question
    trajectory_id: str
    queries: list[str] = field(default_factory=list[str])

    @property
    def is_local(self) -> bool:
        return self.engine.chat.is_local

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        first = len(self.queries)
        self.queries += queries
        return await all_of(self._simulate(query, first + i, k) for i, query in enumerate(queries))

    async def _simulate(self, query: str, number: int, k: int) -> list[Passage]:
        engine, key = self.engine, f"{self.trajectory_id}/search-{number}"
        noise, counts = engine.current
        noisy = random.Random(f"{engine.seed}/noise/{key}").random() < noise or not self.question.is_answerable
        messages = simulator_messages(
            engine.prompts,
            self.question,
            query,
            [one for one in dict.fromkeys(self.queries[:number]) if one != query],
            useful=not noisy,
            documents=k,
            max_words=engine.max_words,
        )
        counts.update(queries=1, noisy=noisy)
        try:
            texts = await self._documents(messages, key, k)
        except ToolError:
            counts["failed"] += 1
            raise
        return [Passage(f"{key}/{i}", key, "", text) for i, text in enumerate(texts, start=1)]

    async def _documents(self, messages: list[Message], key: str, k: int) -> list[str]:
        engine = self.engine
        try:
            return parse_documents(await engine.chat.chat(messages, key=key), k, engine.max_words)
        except ReplyError:
            engine.current[1]["repeated"] += 1
        return parse_documents(await engine.chat.chat(messages, key=f"{key}/again"), k, engine.max_words)


def parse_documents(reply: str, count: int, max_words: int) -> list[str]:
    """Parse the documents of a reply: `Document 1: ...`, `Document 2: ...`, to `count`, a line each (or all in one),
    each of 1 to `max_words` words.

    Emphasis, marks of a list or a heading around "Document 1", a fence around all, and reasoning before it are ignored.
    Raises ReplyError for any other reply: a wrong number or order, words before, between or after the documents, an
    empty or too long document.
    """
    text = DRESS.sub("", reply).strip()
    markers = [found for found in (_MARKER_OF_LINE if "\n" in text else _MARKER).finditer(text) if found[1]]
    ends = [*(marker.start() for marker in markers), len(text)]
    texts = [text[marker.end() : end].strip() for marker, end in zip(markers, ends[1:], strict=True)]
    numbers = [marker[1] for marker in markers]
    in_order = not text[: ends[0]].strip() and numbers == [str(number) for number in range(1, count + 1)]
    if not in_order or not all(_is_document(piece, max_words) for piece in texts):
        shown = reply if len(reply) <= 200 else f"{reply[:200]}..."
        raise ReplyError(
            f"The simulated engine replied {shown!r}. Expected the documents 1 to {count} (search.top_k), each in a "
            f'line after "Document 1:" and so on, of 1 to {max_words} words, and nothing else. Tune the simulator '
            "(evoseek simulator tune) for that many documents, use a larger model, or raise simulator.max_words."
        )
    return texts


def _is_document(text: str, max_words: int) -> bool:
    """Return whether a line has a valid number of words, and not too many characters in scripts without spaces."""
    return len(text) <= _CHARACTERS * max_words and "\n" not in text and 0 < len(text.split()) <= max_words


def simulator_reply(texts: Sequence[str]) -> str:
    """Return a reply with these documents, each in one line (see `parse_documents`)."""
    return "\n".join(f"Document {number}: {' '.join(text.split())}" for number, text in enumerate(texts, start=1))


def write_card(directory: Path, *, top_k: int, max_words: int) -> None:
    """Record the number and length of a tuned simulator's documents in its directory."""
    write_atomic(directory / CARD, json.dumps({"search.top_k": top_k, "simulator.max_words": max_words}) + "\n")


def simulated_engine(config: Any) -> SimulatedEngine:
    """Return the simulator of a run's settings as an engine, without noise.

    Raises PolicyError, and ConfigError, also for a simulator tuned to write another number of documents or longer ones.
    """
    if not config.simulator.base_url:
        _check_card(config)
    chat, prompts = make_chat(config.simulator, section="simulator", seed=config.run.seed, policy=config.policy)
    return SimulatedEngine(chat, prompts, config.simulator.max_words, config.run.seed)


def _check_card(config: Any) -> None:
    card = Path(config.simulator.model) / CARD
    if not card.is_file():  # not tuned by evoseek
        return
    try:
        tuned = json.loads(card.read_text(encoding="utf-8"))
        fits = tuned["search.top_k"] == config.search.top_k
        fits = fits and tuned["simulator.max_words"] <= config.simulator.max_words
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ConfigError(
            f"{card} cannot be read ({type(error).__name__}: {error}), so the "
            "simulator's format is unknown. Tune it again (evoseek simulator tune), or delete the file if its replies "
            "are known to fit."
        ) from error
    if not fits:
        raise ConfigError(
            f"The simulator {config.simulator.model} was tuned for {tuned}, but search.top_k is {config.search.top_k} "
            f"and simulator.max_words is {config.simulator.max_words}: none of its replies could be read. Use the "
            "settings that it was tuned with, or tune another."
        )
