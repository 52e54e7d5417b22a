"""Rules about an answer: its sentences, its length, its kind, and where it occurs."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from evoseek.documents.passages import sentences
from evoseek.questions.question_rules import may_be_polar, offers_alternatives
from evoseek.text.language import LANGUAGES, STOP_WORDS, WORDED, YES_NO, languages_of, words_in, words_of
from evoseek.text.scripts import family, find_citations, fold, is_unspaced, length, script_counts

MAX_WORDS, MAX_CHARACTERS = 12, 200
_SENTENCE_WORDS, _RESTATED_WORDS = 4, 6
_RESTATED = 0.5  # share of a long answer that its question contains already
_FULL_STOP = re.compile(r"[^\W\d_]{4}[.!।。]$|[a-zß-öø-ÿа-яё]{2}[.!]$|\d[.।。]$")
_FINITE = words_in(*(language.finite for language in WORDED))
_SPACED_DIGITS = re.compile(r"(?<!\d)\d{1,3}(?: \d{3})+(?!\d)")
_HYPHEN = re.compile(r"(?<=\w)[-‐‑](?=\w)")
_CHOICES = words_in(*(language.choices for language in WORDED))
_ENDINGS = words_in("s es n en e er em ns u iu a y ie owi ego im i ow ach")
_AFFIXED = ("HANGUL", "ARABIC")  # scripts whose words carry particles, so an answer may be within a word
NUMBER_WORDS = {
    word: str(value)
    for language in LANGUAGES.values()
    for value, words in enumerate(language.numbers.split())
    for word in fold(words.replace("/", " ")).split()
}
"""The digits of numbers written as words."""


class AnswerSentence(NamedTuple):
    """A sentence of an answer without its citations, the white space before it, and the numbers that it cites."""

    text: str
    before: str
    cited: list[int]


def sentences_of(answer: str, *, cites: bool = True) -> list[AnswerSentence]:
    """Split an answer, or a text that cites nothing, into sentences and lines."""
    plain, cited = find_citations(answer) if cites else (answer, [])
    places = sentences(plain)
    befores = [plain[end:start] for (_, end), (start, _) in pairwise([(0, 0), *places])]
    starts, ats = [-1, *(start for start, _ in places[1:]), len(plain)], [at for _, at in cited]
    numbers = [number for number, _ in cited]
    return [
        AnswerSentence(plain[start:end], before, numbers[bisect_right(ats, first) : bisect_right(ats, last)])
        for (start, end), before, first, last in zip(places, befores, starts, starts[1:], strict=False)
    ]


def is_long(answer: str) -> bool:
    """Return whether an answer has more words or characters than a name or a date. This bounds the input of the other
    rules."""
    return len(answer) > MAX_CHARACTERS or length(answer)[0] > MAX_WORDS


def is_sentence(answer: str, question: str) -> bool:
    """Return whether an answer is a statement: it ends with a full stop, has a finite verb in lower case, or repeats
    much of the question. Titles among the question's alternatives may look like this."""
    words = answer.split()
    if len(words) < _SENTENCE_WORDS:
        return False
    if _FULL_STOP.search(answer):
        return True
    return not offers_alternatives(question) and (bool(_FINITE & set(words)) or _restates(fold(answer), fold(question)))


def _restates(answer: str, question: str) -> bool:
    words, asked = answer.split(), set(question.split())
    return len(words) >= _RESTATED_WORDS and sum(word in asked for word in words) >= _RESTATED * len(words)


def stands_in_question(answer: str, question: str) -> bool:
    """Return whether a question contains its own answer, as whole words (`Tunis` is not in `Tunisia`), or as characters
    in scripts without spaces. The question's alternatives, and yes and no, are allowed."""
    folded, asked = (fold(_HYPHEN.sub("", text)) for text in (answer, question))
    if not folded or folded in YES_NO or offers_alternatives(question):
        return False
    if _is_joined(answer):
        return len(folded) > 1 and folded.replace(" ", "") in asked.replace(" ", "")
    return f" {folded} " in f" {asked} "


def _is_joined(text: str) -> bool:
    return is_unspaced(text) or family(script_counts(text)) in _AFFIXED


def misfits(answer: str, question: str) -> bool:
    """Return whether an answer is of the wrong kind for the question: yes or no to an open question, anything else to a
    yes-or-no question, or none of the alternatives."""
    folded, asked = fold(answer), fold(question)
    if folded in YES_NO:
        return not may_be_polar(question)
    return _is_choice(question) and not _is_offered(folded, asked)


def _is_choice(question: str) -> bool:
    """Return whether the answer must be one of the alternatives: after `which` and similar words, or if the question
    begins like a yes-or-no question."""
    if not offers_alternatives(question) or not set(WORDED).issuperset(languages_of(question)):
        return False
    return bool(_CHOICES & set(words_of(question).split()[:4])) or may_be_polar(question)


def _is_offered(answer: str, question: str) -> bool:
    offered = question.split()
    return any(_same(word, other) for word in _significant(answer.split()) for other in offered)


def is_supported(answer: str, question: str, passages: Sequence[str]) -> bool:
    """Return whether a passage contains the answer: its words consecutively, or all its significant words in any order
    and form (dates, inflected names; `6 000` is also `6000`). Yes, no and the question's alternatives need no passage,
    nor does any answer if there are no passages."""
    folded, joined = fold(answer), _is_joined(answer)
    if not passages or folded in YES_NO or offers_alternatives(question):
        return True
    texts = [fold(passage) for passage in passages]
    if any(_contains(text, folded, joined or is_unspaced(text)) for text in texts):
        return True
    return any(map(str.isdigit, folded)) and any(_contains(_closed(text), _closed(folded), joined) for text in texts)


def _closed(text: str) -> str:
    """Remove spaces that may group digits from a folded text. Some do not: `on May 12 200 people` has two numbers."""
    return _SPACED_DIGITS.sub(lambda number: number.group().replace(" ", ""), text)


def _contains(passage: str, answer: str, joined: bool) -> bool:
    if joined:
        return _digits_bounded(answer.replace(" ", ""), passage.replace(" ", ""))
    if f" {answer} " in f" {passage} ":
        return True
    exact, words = set(passage.split()), _significant(answer.split())
    return all(word in exact or any(_same(word, other) for other in exact) for word in words)


def _digits_bounded(answer: str, passage: str) -> bool:
    """Return whether characters occur in a passage without adjoining digits where they begin or end with a digit."""
    before, after = r"(?<!\d)" if answer[:1].isdigit() else "", r"(?!\d)" if answer[-1:].isdigit() else ""
    return re.search(before + re.escape(answer) + after, passage) is not None


def _significant(words: list[str]) -> list[str]:
    return [word for word in words if word not in STOP_WORDS] or words


def _same(word: str, other: str) -> bool:
    """Return whether two words are equal, are forms of one word (by their endings alone), or mean the same number."""
    if word == other or NUMBER_WORDS.get(word, word) == NUMBER_WORDS.get(other, other):
        return True
    short, long = sorted((word, other), key=len)
    if len(short) < 3 or any(character.isdigit() for character in short + long):
        return False
    if short == long:
        return True
    if long.startswith(short) and long[len(short) :] in _ENDINGS:
        return len(short) > 3
    return _inflects(short) and len(long) - len(short) <= 3 and _common(short, long) >= max(3, len(short) - 2)


def _inflects(word: str) -> bool:
    return family(script_counts(word)) in ("CYRILLIC", "GREEK", "DEVANAGARI")


def _common(first: str, second: str) -> int:
    return next((place for place, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), len(first))
