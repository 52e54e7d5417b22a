"""Questions of two hops without a label: the answer of one question is what the document of another one is about.

    The Kite is a 1947 film directed by who?   -> Ada Birk          (document The Kite)
    When was Ada Birk born?                    -> 16 June 1911      (document Ada Birk)
    When was the director of the film The Kite born?

Both documents are known, so the two searches are known, and each is checked by the engine. Or two things are compared,
by the dates of the same question about both:

    When was Ada Birk born?     -> 16 June 1911
    When was Oto Vale born?     -> 3 May 1920
    Who was born first, Oto Vale or Ada Birk?
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from evoseek.questions.writers.clozes import Cloze, opened, subject, words
from evoseek.questions.writers.english import AGENTS, BY_AGENT, ENDS_OPEN, OF_WHOLE, PAST, WORK

_MOST_WORDS, _MOST_OF_DESCRIPTION = 40, 12
_SHORT_TITLE = 2  # words
_FIRST = ("date", "nationality")  # kinds whose questions are the plainest


@dataclass(frozen=True, slots=True)
class Chain:
    """A question whose answer takes two searches: `first` leads to the document that `second` is about."""

    question: str
    first: Cloze
    second: Cloze

    @property
    def answer(self) -> str:
        return self.second.answer


def chains(by_document: Mapping[str, Sequence[Cloze]], titles: Mapping[str, str]) -> Iterator[Chain]:
    """The chains between documents, of each pair of documents at most one: with the second questions of the kinds
    `_FIRST` in turn, or else with the first one. `titles` are those of all documents, by their ids: an answer has to
    name exactly one."""
    turn = 0
    about: dict[str, list[str]] = {}
    for id, title in titles.items():
        about.setdefault(_plain(subject(title)), []).append(id)
    for id, questions in by_document.items():
        linked = set[str]()
        for first in questions:
            found = about.get(_plain(first.answer), [])
            if first.kind == "subject" or not first.query or len(found) != 1 or found[0] == id or found[0] in linked:
                continue
            made = [chain for second in by_document.get(found[0], ()) if (chain := chained(first, second))]
            if made:
                best = [chain for chain in made if chain.second.kind in _FIRST] or made[:1]
                linked.add(found[0])
                yield best[turn % len(best)]
                turn += 1


def chained(first: Cloze, second: Cloze) -> Chain | None:
    """The question of both hops, or None where it would name the bridge, or give its answer away."""
    bridge = subject(second.title)
    described = description(first)
    if described is None or second.kind == "subject" or not second.query:
        return None
    is_own = described.startswith(f"{first.query}'s")  # "Marlow's director", who has one name
    if re.search(r"\b[Ww]ho\b", first.question) and not (second.of_person or is_own):
        return None
    ends = r"(?![\w-])" if is_own else r"(?![\w'’-])"  # not "the one who wrote X's"
    named = rf"(?P<kind>\b[Tt]he [a-z]* ?)?(?<!\w){re.escape(bridge)}{ends}"  # "the class Tree" too
    if not (found := re.search(named, second.question)) or not described.startswith((found["kind"] or "").lower()):
        return None  # "the film Tree" of a person
    question = second.question[: found.start()] + described + second.question[found.end() :]
    known = set(words(first.question)) | set(words(bridge))
    if (
        bridge.lower() in question.lower()
        or len(words(question)) > _MOST_WORDS
        or set(words(second.answer)) <= known
        or set(words(second.answer)) <= set(words(question))
    ):
        return None
    return Chain(opened(question), first, second)


def description(cloze: Cloze) -> str | None:
    """What describes the answer of a question by its statement: "the director of The Kite". None if its words cannot
    stand in another sentence."""
    name, before = cloze.query, cloze.before
    if not name or not before.startswith(name):
        return None
    said = before[len(name) :].rstrip()
    if (whole := OF_WHOLE.match(said)) and not cloze.after.strip():
        return f"the {whole['whole']} with the {whole['part']} {name}"
    if found := re.match(r"['’]s ([\w -]+) (?:is|was)$", said):
        return f"{name}'s {found[1]}"
    if found := BY_AGENT.match(said):
        return _agent(found["verb"], found["work"] or "", name)
    kind = re.search(r" the (\w+)$", said)
    said = said[: kind.start()] if kind else said
    if not ENDS_OPEN.match(said) or len(words(said)) > _MOST_OF_DESCRIPTION:
        return None
    noun = f"the {kind[1]}" if kind else "the place" if said.endswith((" in", " at", " near")) else "the one"
    tail = f" {cloze.after.strip()}" if cloze.after.strip() else ""
    return f"{noun} that {name}{said}{tail}"


def _agent(verb: str, work: str, name: str) -> str:
    """With the kind of the work for titles of one or two words, which say least by themselves."""
    if verb not in AGENTS:
        return f"the one who {PAST.get(verb, verb)} {name}"
    kind = WORK.search(work) if len(name.split()) <= _SHORT_TITLE else None
    return f"the {AGENTS[verb]} of {f'the {kind[1]} {name}' if kind else name}"


def _plain(text: str) -> str:
    return " ".join(words(text))


_ASKED = re.compile(r"When (?:was (?:the (?P<noun>\w+) )?\* (?P<verb>\w+)|did \* (?P<died>die))\?")
_YEAR = re.compile(r"\d{4}")


@dataclass(frozen=True, slots=True)
class Comparison:
    """A question whose answer is what the earlier of two dates is about: a search for each."""

    question: str
    first: Cloze
    second: Cloze
    answer: str


def comparisons(by_document: Mapping[str, Sequence[Cloze]], rng: random.Random) -> Iterator[Comparison]:
    """Pairs of documents that answer the same question with dates of different years; each document is in one pair at
    most, for each question."""
    asked: dict[str, list[tuple[int, Cloze]]] = {}
    for found in by_document.values():
        for frame, dated in dict(_dated(found)).items():
            asked.setdefault(frame, []).append(dated)
    for frame, found in asked.items():
        mixed = rng.sample(found, len(found))
        for (year, one), (other_year, other) in zip(mixed[::2], mixed[1::2], strict=False):
            if year != other_year:
                question = f"{_first(frame)} first, {one.query} or {other.query.removesuffix('?')}?"
                yield Comparison(question, one, other, (one if year < other_year else other).query)


def _dated(clozes: Sequence[Cloze]) -> Iterator[tuple[str, tuple[int, Cloze]]]:
    """The questions about a document that can be compared, without its name, with the years of their answers."""
    for cloze in clozes:
        frame = cloze.question.replace(cloze.query, "*", 1)
        if cloze.query == subject(cloze.title) and (year := _YEAR.search(cloze.answer)) and _ASKED.fullmatch(frame):
            yield frame, (int(year[0]), cloze)


def _first(frame: str) -> str:
    """What is asked of two things that this was asked of: `Which film was released`."""
    found = _ASKED.fullmatch(frame)
    if found is None or found["died"]:
        return "Who died"
    asked = "Who" if found["verb"] == "born" else f"Which {found['noun']}" if found["noun"] else "Which"
    return f"{asked} was {found['verb']}"
