"""Questions of two hops that compare: which of two things was first, by the dates of the same question about both.

When was Ada Birk born?     -> 16 June 1911
When was Oto Vale born?     -> 3 May 1920
Who was born first, Oto Vale or Ada Birk?
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from evoseek.cold_start.clozes import Cloze, subject

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
