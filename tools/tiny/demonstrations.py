"""Demonstrations from which the tiny policy learns its formats and skills, before any reinforcement learning.

All come from generated worlds of the pretraining split, with real retrieval. There are six kinds:

    solve    a question answered by one search a hop; most demonstrations stop after the first hop, with the wrong
             answer, so that going on to the end is left to reinforcement learning
    propose  from a passage and a number of hops to a question and its answer, by hops - 1 searches (Dr. Zero)
    propose_freely  the same without a number: most have one hop
    trace    from an answer and a number of searches backwards to a question (Search Self-play)
    read     a question answered from given passages, without searching
    copy     sentences of the world repeated: the skill that all others rest on
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from evoseek.types import Passage
from evoseek.world.grammar import QUESTION_PHRASINGS, chain_text
from evoseek.world.world import ENTITY_RELATIONS, Fact, World

Retrieve = Callable[[str], list[Passage]]
DemonstrationKind = Literal["solve", "propose", "trace", "read", "copy", "propose_freely"]
NOTHING = "unknown"
MAX_TRIES = 1000
HOP_SHARES: dict[DemonstrationKind, tuple[int, int, int, int]] = {
    "solve": (1, 1, 1, 1),
    "propose": (3, 3, 3, 2),
    "trace": (4, 4, 2, 0),
    "read": (2, 1, 1, 0),
    "copy": (1, 0, 0, 0),
    "propose_freely": (16, 6, 2, 1),
}


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a demonstration, as text. Observations are the passages' texts, without the surrounding tags."""

    kind: Literal["prompt", "action", "observation"]
    text: str


Demonstration = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class DemonstrationShares:
    """Shares of the kinds, how flawed the solver's demonstrations are, and in how many demonstrations of reading all
    passages are shown that a search finds, the misleading ones too, instead of the right one.

    `propose_freely` is proposing without a requested number of hops: most of these demonstrations have one hop."""

    solve: float = 0.34
    propose: float = 0.20
    trace: float = 0.28
    read: float = 0.16
    copy: float = 0.02
    propose_freely: float = 0.0
    early_stop: float = 0.88
    wrong_relation: float = 0.04
    other_phrasing: float = 0.2
    flawed_proposal: float = 0.0
    read_retrieved: float = 0.0

    @property
    def shares(self) -> dict[DemonstrationKind, float]:
        """DemonstrationKind -> share."""
        return {kind: getattr(self, kind) for kind in HOP_SHARES}


class Demonstrator:
    """Writes demonstrations about one world. `retrieve` gives a query's best passages."""

    def __init__(self, world: World, retrieve: Retrieve, mixture: DemonstrationShares, rng: random.Random) -> None:
        self.world = world
        self.retrieve = retrieve
        self.mixture = mixture
        self.rng = rng
        self._sources = list(world.passages())

    def draw(self, kind: DemonstrationKind | None = None) -> Demonstration:
        """A demonstration of this kind, or of a kind drawn by the mixture's shares.

        The number of hops is drawn first and kept over many tries: longer demonstrations fail more often (retrieval
        must find every link), and would otherwise be rare. In a few small worlds some kinds are impossible.
        """
        shares = self.mixture.shares
        chosen = kind or self.rng.choices(list(shares), list(shares.values()))[0]
        write: dict[DemonstrationKind, Callable[[int], Demonstration | None]] = {
            "solve": self.solve,
            "propose": self.propose,
            "trace": self.trace,
            "read": self.read,
            "copy": self.copy,
            "propose_freely": partial(self.propose, free=True),
        }
        while True:
            hops = self.rng.choices((1, 2, 3, 4), HOP_SHARES[chosen])[0]
            for _ in range(MAX_TRIES):
                made = write[chosen](hops)
                if made is not None:
                    return made

    def _phrasing(self) -> int:
        return draw_phrasing(self.rng, self.mixture.other_phrasing)

    def solve(self, hops: int) -> Demonstration | None:
        """Search, read, continue; or stop too early."""
        drawn = draw_chain(self.world, self.rng, hops)
        if drawn is None:
            return None
        name, relations, chain = drawn
        stops = len(chain) > 1 and self.rng.random() < self.mixture.early_stop
        pieces = [Piece("prompt", solve_prompt(chain_text(name, relations, self._phrasing())))]
        thought = ""
        for fact in chain[:1] if stops else chain:
            query = f"{fact.subject}'s {fact.relation}"
            if self.rng.random() < self.mixture.wrong_relation:
                query = f"{fact.subject}'s {self.rng.choice(ENTITY_RELATIONS)}"
            passages = self.retrieve(query)
            if not _tells(passages, fact):
                return None
            pieces += [Piece("action", f"{thought}<search> {query} </search>"), observation(passages)]
            thought = f"<think> {say(fact)} </think>"
        answer = (chain[0] if stops else chain[-1]).object
        pieces.append(Piece("action", f"{thought}<answer> {answer} </answer>"))
        return tuple(pieces)

    def propose(self, hops: int, *, free: bool = False) -> Demonstration | None:
        """From a passage forwards, hops - 1 searches; the prompt says how many, unless the choice is `free`."""
        drawn = draw_chain(self.world, self.rng, hops)
        if drawn is None:
            return None
        name, relations, chain = drawn
        source = next(p for p in self._sources if p.title == name and _tells([p], chain[0]))
        pieces = [Piece("prompt", propose_prompt(0 if free else hops, source.text))]
        thought = f"<think> {say(chain[0])} </think>"
        for fact in chain[1:]:
            passages = self.retrieve(fact.subject)
            if not _tells(passages, fact):
                return None
            pieces += [Piece("action", f"{thought}<search> {fact.subject} </search>"), observation(passages)]
            thought = f"<think> {say(fact)} </think>"
        if self.rng.random() < self.mixture.flawed_proposal:
            relations = [self.rng.choice(ENTITY_RELATIONS), *relations[1:]]
        asked = f"<question> {chain_text(name, relations)} </question>"
        pieces.append(Piece("action", f"{thought}{asked}<answer> {chain[-1].object} </answer>"))
        return tuple(pieces)

    def trace(self, searches: int) -> Demonstration | None:
        """From an answer backwards. The thought copies a passage from its subject up to the sentence that ends with the
        name sought, because a subject stands before its object and copying only runs forwards."""
        drawn = draw_chain(self.world, self.rng, searches)
        if drawn is None or drawn[2][-1].relation == "year":
            return None
        name, relations, chain = drawn
        pieces = [Piece("prompt", trace_prompt(searches, chain[-1].object))]
        thought = ""
        for fact in reversed(chain):
            passages = self.retrieve(fact.object)
            passage = next((p for p in passages if p.title != fact.object and f" is {fact.object}." in p.text), None)
            if passage is None or passage.title != fact.subject:
                return None
            pieces += [Piece("action", f"{thought}<search> {fact.object} </search>"), observation(passages)]
            seen = passage.text[: passage.text.index(f" is {fact.object}.")]
            if not seen.endswith(f"{fact.subject}'s {fact.relation}"):
                return None
            thought = f"<think> {seen} is {fact.object}. so {fact.subject}'s {fact.relation} </think>"
        asked = f"<question> {chain_text(name, relations)} </question>"
        pieces.append(Piece("action", f"{thought}{asked}<answer> {chain[-1].object} </answer>"))
        return tuple(pieces)

    def read(self, hops: int) -> Demonstration | None:
        """From given passages in any order, some of them beside the point; `unknown` when they do not suffice."""
        drawn = draw_chain(self.world, self.rng, hops)
        if drawn is None:
            return None
        name, relations, chain = drawn
        retrieved = self.mixture.read_retrieved > 0 and self.rng.random() < self.mixture.read_retrieved
        shown: dict[str, Passage] = {}
        for fact in chain:
            found = self.retrieve(self.rng.choice((fact.subject, fact.object)) if retrieved else fact.subject)
            telling = [p for p in found if _tells([p], fact)]
            if not telling:
                return None
            shown |= {passage.id: passage for passage in (found if retrieved else telling[:1])}
        for passage in self.rng.sample(self._sources, self.rng.randrange(0, 5)):
            shown.setdefault(passage.id, passage)
        missing = self.rng.random() < 0.1
        passages = [p for p in shown.values() if not (missing and _tells([p], chain[-1]))]
        self.rng.shuffle(passages)
        told = chain[:-1] if missing else chain
        thought = f"<think> {' '.join(say(fact) for fact in told)} </think>" if told else ""
        answer = NOTHING if missing else chain[-1].object
        text = " ".join(passage.text for passage in passages)
        return (
            Piece("prompt", f"read : {chain_text(name, relations, self._phrasing())} {text}"),
            Piece("action", f"{thought}<answer> {answer} </answer>"),
        )

    def copy(self, _hops: int) -> Demonstration | None:
        """Passages, then one of them again."""
        passages = self.rng.sample(self._sources, 3)
        text = " ".join(passage.text for passage in passages)
        return (Piece("prompt", f"read : {text} <think>"), Piece("action", f"{self.rng.choice(passages).text}</think>"))


def draw_chain(world: World, rng: random.Random, hops: int) -> tuple[str, list[str], list[Fact]] | None:
    """Name, relations and facts of a question of that many hops; None if what was drawn is none."""
    start, relations = world.draw_chain(rng, hops)
    name = world.names[start]
    truth = world.oracle(chain_text(name, relations))
    return (name, relations, list(truth.chain)) if truth is not None and truth.hops == hops else None


def draw_phrasing(rng: random.Random, other: float) -> int:
    """The plain phrasing of a question, or with a share `other` another one."""
    return rng.randrange(1, QUESTION_PHRASINGS) if rng.random() < other else 0


def solve_prompt(question: str) -> str:
    """The prompt of a solver."""
    return f"solve : {question}"


def propose_prompt(hops: int, passage: str) -> str:
    """The prompt of a proposer that starts from a passage. 0 hops: it chooses their number."""
    return f"propose {hops} hops : {passage}" if hops else f"propose hops : {passage}"


def trace_prompt(searches: int, answer: str) -> str:
    """The prompt of a proposer that starts from an answer."""
    return f"propose {searches} searches : answer {answer}"


def observation(passages: Sequence[Passage]) -> Piece:
    """What the policy is shown of these passages."""
    return Piece("observation", "\n".join(passage.text for passage in passages))


def say(fact: Fact) -> str:
    """The fact as documents say it."""
    return f"{fact.subject}'s {fact.relation} is {fact.object}."


def _tells(passages: Sequence[Passage], fact: Fact) -> bool:
    return any(say(fact) in passage.text for passage in passages)
