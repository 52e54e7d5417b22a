"""Questions of two hops without labels: the answer of one question is the subject of another question's document.

Who directed The Kite?       -> Ada Birk          (document The Kite)
When was Ada Birk born?      -> 16 June 1911      (document Ada Birk)
When was the director of the film The Kite born?
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evoseek.questions.writers.base import words
from evoseek.questions.writers.rules_en import english as en
from evoseek.questions.writers.rules_en.clozes import Cloze, opened

_MOST_WORDS, _MOST_OF_DESCRIPTION = 40, 12
_SHORT_TITLE = 2  # words
_FIRST = ("date", "nationality")  # kinds whose questions are the plainest


@dataclass(frozen=True, slots=True)
class Chain:
    """A question that needs two searches: `first` leads to the document of `second`."""

    question: str
    first: Cloze
    second: Cloze


def chains(by_document: Sequence[Sequence[Cloze]]) -> Iterator[Chain]:
    """Join questions of documents, at most once for each pair of documents. Second questions take turns among the kinds
    `_FIRST`, or else the first one is used. An answer must be the subject of exactly one document."""
    turn = 0
    about: dict[str, list[int]] = {}
    for place, questions in enumerate(by_document):
        if questions:
            about.setdefault(_plain(questions[0].subject), []).append(place)
    for place, questions in enumerate(by_document):
        linked = set[int]()
        for first in questions:
            found = about.get(_plain(first.answer), [])
            if first.kind == "subject" or not first.query or len(found) != 1 or found[0] in (place, *linked):
                continue
            made = [chain for second in by_document[found[0]] if (chain := chained(first, second))]
            if made:
                best = [chain for chain in made if chain.second.kind in _FIRST] or made[:1]
                linked.add(found[0])
                yield best[turn % len(best)]
                turn += 1


def chained(first: Cloze, second: Cloze) -> Chain | None:
    """Join two questions. None if the result would name the link between them, or give its answer away."""
    bridge = second.subject
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
    """Describe the answer of a question by its statement: "the director of The Kite". None if the words cannot stand in
    another sentence."""
    name, before = cloze.query, cloze.before
    if not name or not before.startswith(name):
        return None
    said = before[len(name) :].rstrip()
    if whole := en.PART_OF_WHOLE.match(f"{said} {cloze.answer}"):
        return f"the {whole['whole']} with the {whole['part']} {name}"
    if found := re.match(r"['’]s ([\w -]+) (?:is|was)$", said):
        return f"{name}'s {found[1]}"
    if found := en.BY_AGENT.match(said):
        return _agent(found["verb"], found["work"] or "", name)
    kind = re.search(r" the (\w+)$", said)
    said = said[: kind.start()] if kind else said
    if not en.OPEN_PREDICATE.match(said) or len(words(said)) > _MOST_OF_DESCRIPTION:
        return None
    noun = f"the {kind[1]}" if kind else "the place" if said.endswith((" in", " at", " near")) else "the one"
    tail = f" {cloze.after.strip()}" if cloze.after.strip() else ""
    return f"{noun} that {name}{said}{tail}"


def _agent(verb: str, work: str, name: str) -> str:
    """Describe the agent of a work, with the work's kind if its title has only one or two words."""
    if verb not in en.AGENTS:
        return f"the one who {en.PAST_TENSES.get(verb, verb)} {name}"
    kind = en.WORK.search(work) if len(name.split()) <= _SHORT_TITLE else None
    return f"the {en.AGENTS[verb]} of {f'the {kind[1]} {name}' if kind else name}"


def _plain(text: str) -> str:
    return " ".join(words(text))
