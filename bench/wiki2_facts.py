"""Facts that introductions of Wikipedia articles state, found by patterns, and questions about them.

A corpus here is JSON lines with `title` and `text`, as `bench/wiki2_demonstrations.py` describes. Of a film its
director is found, of other articles a birth date, a birth place and a nationality. From these follow questions of one
hop ("Who directed the film Alien?") and of two ("When was the director of the film Alien born?"), and a judge of
questions in these words. Patterns miss facts, and find a few that are none: what the judge does not know may be right
all the same.
"""

import json
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Literal

from evoseek.text.normalization import normalise

Verdict = Literal["right", "wrong", "unknown", "other"]

_MONTH = "(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_DATE = rf"(?:{_MONTH} \d{{1,2}}, \d{{4}}|\d{{1,2}} {_MONTH} \d{{4}})"
_WORD = r"(?:(?:[A-Z]\.)+|(?:Jr|Sr|St)\.|[A-ZÀ-Þ][\w'’-]*\w)"
_PARTICLES = r"(?:(?:d[aeiu]|de[lrn]|v[ao]n|la|le|bin) )*"
_NAME = rf"{_WORD}(?:(?:- ?| ){_PARTICLES}{_WORD})*"
_PLACE = rf"{_NAME}(?: (?:of|upon|in der) {_NAME})?"
_ENDINGS = "an|ish|ese|nch|utch|lsh|tine|iss|eek|hai|qi|eli|ani|shi|ech|ipino|andic|Zealand"
_PEOPLE = rf"(?:(?:South|North|New) )?[A-Z]\w*(?:{_ENDINGS})"
_PATTERNS = {
    "director": re.compile(
        rf"\b(?:is|was) an?\b[^.]{{0,100}}?\b[Ff]ilm\b[^.]{{0,80}}?\bdirected (?:and [\w-]+ )?by ({_NAME})"
    ),
    "birth date": re.compile(rf"^.{{0,160}}?\((?![^()]*\b(?:died|bapti[sz]ed)\b[^()]*{_DATE})[^()–]*?({_DATE})"),
    "birth place": re.compile(rf"\b[Bb]orn (?:(?:on )?{_DATE},? )?(?:in|at) (?!{_MONTH})(?:the )?({_PLACE})"),
    "nationality": re.compile(rf"\b(?:is|was) an? ({_PEOPLE}(?:[- ]+{_PEOPLE})*)\b"),
}
QUESTIONS = {
    "director": "Who directed the film {0}?",
    "birth date": "When was {0} born?",
    "birth place": "Where was {0} born?",
    "nationality": "What is the nationality of {0}?",
    "director birth date": "When was the director of the film {0} born?",
    "director birth place": "Where was the director of the film {0} born?",
    "director nationality": "What is the nationality of the director of the film {0}?",
}
_ASKED = {
    kind: re.compile(words.replace("?", r"\?").replace("the film ", "(?:the film )?").format("(.+)"), re.IGNORECASE)
    for kind, words in sorted(QUESTIONS.items(), key=lambda item: -len(item[1]))  # those of two hops first
}


class Facts:
    """What the articles state: by title, and of each kind every accepted spelling, the article's own first."""

    def __init__(self, articles: Iterable[tuple[str, str]]) -> None:
        self.by_title = {title: _facts(text) for title, text in articles}

    @classmethod
    def read(cls, corpus: Path) -> "Facts":
        """Those of a corpus."""
        rows = map(json.loads, corpus.read_text(encoding="utf-8").splitlines())
        return cls((row["title"], row["text"]) for row in rows)

    @cached_property
    def titles(self) -> Mapping[str, list[str]]:
        """The titles of each name, whole or `plain`, by its `key`."""
        found: dict[str, list[str]] = {}
        for title in self.by_title:
            found.setdefault(key(plain(title)), []).append(title)
            if plain(title) != title:
                found.setdefault(key(title), []).append(title)
        return found

    def values(self, kind: str, name: str) -> set[str]:
        """Everything that the articles of that name state, as a `key`. Kinds of two hops follow the director."""
        if kind.startswith("director "):
            directors = self.values("director", name)
            return {value for person in directors for value in self.values(kind.removeprefix("director "), person)}
        stated = (self.by_title[title].get(kind, ()) for title in self.titles.get(key(name), ()))
        return {key(value) for values in stated for value in values}

    def judge(self, question: str, answer: str) -> Verdict:
        """Whether the articles state this answer (`right`) or others (`wrong`), neither (`unknown`: the subject or the
        fact is not there, as far as patterns see), or whether the question has other words (`other`). A place may be
        followed by the one that it lies in."""
        asked = parse(question)
        if asked is None:
            return "other"
        values = self.values(*asked)
        said = answer.partition(",")[0] if asked[0].endswith("birth place") else answer
        return "unknown" if not values else "right" if {key(answer), key(said)} & values else "wrong"


def parse(question: str) -> tuple[str, str] | None:
    """The kind of a question and the name in it; None for other words."""
    said = " ".join(question.split())
    return next(((kind, found[1]) for kind, words in _ASKED.items() if (found := words.fullmatch(said))), None)


def key(text: str) -> str:
    """The normal form; the space that the source may have after a hyphen is none."""
    return normalise(text.replace("- ", "-"))


def plain(title: str) -> str:
    """A title without what tells it from others of the same name."""
    return re.sub(r" \([^()]*\)$", "", title)


def _facts(text: str) -> dict[str, tuple[str, ...]]:
    """A film's director, or a person's facts."""
    if found := _PATTERNS["director"].search(text):
        return {"director": (found[1],)}
    stated = {kind: found[1] for kind, pattern in _PATTERNS.items() if (found := pattern.search(text))}
    return {kind: _spellings(kind, value) for kind, value in stated.items()}


def _spellings(kind: str, value: str) -> tuple[str, ...]:
    if kind == "birth date":
        first, second, year = value.replace(",", "").split()
        other = f"{second} {first}, {year}" if first.isdigit() else f"{second} {first} {year}"
        return (value, other)
    if kind == "nationality":
        return tuple(dict.fromkeys((value, *re.findall(_PEOPLE, value))))
    return (value,)
