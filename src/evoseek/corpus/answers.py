"""Answer sets: the answers for which questions are written, mined from a corpus or given as a file.

A file is JSON lines, one answer each; `kind` and `count` may be left out:

    {"answer": "Lake Geneva", "kind": "entity", "count": 12}
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from evoseek.corpus.language import STOP_WORDS
from evoseek.corpus.mentions import TitleFinder, names, numbers, phrases, split_dates, title_key
from evoseek.corpus.rows import read_rows
from evoseek.errors import DataError
from evoseek.files import write_atomic
from evoseek.types import Passage

AnswerKind = Literal["title", "entity", "date", "number", "phrase"]
KINDS: tuple[AnswerKind, ...] = get_args(AnswerKind)

MAX_WORDS, MAX_CHARACTERS = 5, 80
MIN_REPEATS = 2  # passages that a phrase occurs in
_ARTICLES = frozenset({"a", "an", "the"})
_DISAMBIGUATION = re.compile(r"(?<!\s)\s*+\([^()]*+\)\s*+$")  # Mercury (planet)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, its kind (one of `KINDS`, or `given`) and the number of passages that it was found in (0: unknown)."""

    text: str
    kind: str = "given"
    count: int = 0


def mine_answers(
    passages: Iterable[Passage],
    *,
    kinds: Collection[AnswerKind] = KINDS,
    limit: int = 10_000,
    capacity: int = 1_000_000,
) -> list[Answer]:
    """Titles, named entities, dates, numbers with units and frequent phrases that can serve as answers.

    The way back from an answer begins with a passage that tells something else's relation to it. So only the text (not
    the title) of passages with another title counts, and there must be at least one such passage. An answer has at most
    5 words and 80 characters, and a letter or digit in a word that is no stop word.

    The order is that of `KINDS`, and in each the answers that most passages mention come first: there are more ways
    back from them. `limit` is how many are kept of each kind. Of answers that differ in letter case and white space
    alone the first is kept. All passages are held in memory; for each kind, at most `capacity` candidates are kept;
    beyond that the rarest are dropped and the counts may be too low.
    """
    kept = list(passages)
    tallies: dict[AnswerKind, _Tally] = {kind: _Tally(capacity) for kind in KINDS if kind in kinds}
    unsure = _Tally(capacity)
    titles = _usable_titles(kept) if "title" in tallies else {}
    find_titles = TitleFinder(titles)
    for passage in kept:
        own = normal_form(_bare_title(passage.title))
        dates, text = split_dates(passage.text)
        found: dict[AnswerKind, Iterable[str]] = {"date": dates}
        if "title" in tallies:
            found["title"] = (titles[key] for key in find_titles(passage.text))
        if "entity" in tallies:
            found["entity"], perhaps = names(text)
            unsure.add(perhaps, own)
        if "number" in tallies:
            found["number"] = numbers(text)
        if "phrase" in tallies:
            found["phrase"] = phrases(text)
        for kind, tally in tallies.items():
            tally.add(found[kind], own)
    if "entity" in tallies:
        tallies["entity"].add_known(unsure)
    return list(_best(tallies, limit))


def normal_form(text: str) -> str:
    """The text without differences of letter case and white space."""
    return " ".join(text.casefold().split())


def load_answers(path: Path) -> list[Answer]:
    """The answers of a file, in order; of answers with the same normal form the first stays.

    Raises DataError, naming file and line, if the file cannot be read, holds no answer, or a line cannot be used.
    """
    answers: dict[str, Answer] = {}
    for answer in read_rows(path, _answer, noun="answer", keys='"answer", and "kind" and "count" if they are known'):
        answers.setdefault(normal_form(answer.text), answer)
    return list(answers.values())


def save_answers(path: Path, answers: Iterable[Answer]) -> None:
    """Write a file that `load_answers` reads back. Raises RunError when the disk does not take it."""
    rows = ({"answer": answer.text, "kind": answer.kind, "count": answer.count} for answer in answers)
    write_atomic(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


class _Tally:
    """In how many passages each candidate occurs, by normal form."""

    def __init__(self, capacity: int) -> None:
        self.found: dict[str, tuple[str, int]] = {}
        self._capacity = capacity

    def add(self, texts: Iterable[str], own: str) -> None:
        """Count what a passage mentions, except its own subject. Sorted, so that the first spelling does not depend on
        the order of a set."""
        for form, text in {normal_form(text): text for text in sorted(texts, reverse=True)}.items():
            if form != own:
                first, count = self.found.get(form, (text, 0))
                self.found[form] = first, count + 1
        if len(self.found) > self._capacity:
            self._forget()

    def add_known(self, other: _Tally) -> None:
        """Add the counts of candidates that are in both."""
        for form, (text, count) in self.found.items():
            self.found[form] = text, count + other.found.get(form, ("", 0))[1]

    def _forget(self) -> None:
        """Drop the rarest, until half of the room is free."""
        rarest = 0
        while len(self.found) > self._capacity // 2:
            rarest += 1
            self.found = {form: item for form, item in self.found.items() if item[1] > rarest}


def _best(tallies: Mapping[AnswerKind, _Tally], limit: int) -> Iterator[Answer]:
    """The most frequent of each kind, no form twice."""
    taken: set[str] = set()
    for kind, tally in tallies.items():
        least = MIN_REPEATS if kind == "phrase" else 1
        usable = (
            (form, text, count)
            for form, (text, count) in tally.found.items()
            if count >= least and form not in taken and _is_usable(form)
        )
        best = sorted(usable, key=lambda item: (-item[2], item[0]))[:limit]
        taken.update(form for form, _, _ in best)
        yield from (Answer(" ".join(text.split()), kind, count) for _, text, count in best)


def _is_usable(form: str) -> bool:
    words = form.split(" ")
    short = len(form) <= MAX_CHARACTERS and len(words) <= MAX_WORDS
    return short and not STOP_WORDS.issuperset(words) and _says_something(form)


def _says_something(form: str) -> bool:
    """Whether anything is left of an answer without punctuation and articles. An empty normal form would match any
    other."""
    return any(character.isalnum() for word in form.split(" ") if word not in _ARTICLES for character in word)


def _usable_titles(passages: Sequence[Passage]) -> dict[str, str]:
    """Titles by the key that they are found by; of equal keys the first."""
    bare = (_bare_title(passage.title) for passage in reversed(passages))
    return {title_key(title): title for title in bare if _is_usable(normal_form(title))}


def _bare_title(title: str) -> str:
    return _DISAMBIGUATION.sub("", title).strip()


def _answer(row: Mapping[str, object], _number: int) -> Answer:
    text, kind, count = row.get("answer"), row.get("kind", "given"), row.get("count", 0)
    if not isinstance(text, str) or not _says_something(normal_form(text)):
        raise DataError(
            f'It holds no usable answer, but {text!r}. Expected a line such as {{"answer": "Lake Geneva"}}.'
        )
    if not isinstance(kind, str):
        raise DataError(f"The key `kind` is {kind!r}; it has to be a text.")
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise DataError(f"The key `count` is {count!r}; it has to be an integer of at least 0.")
    return Answer(text.strip(), kind, count)
