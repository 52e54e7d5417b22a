"""What a text mentions: names, dates, numbers, phrases and given titles, found by their looks alone.

No model and no dictionary of names is behind this, so it works in any language, and errs. What is found is as the text
writes it. Texts in scripts without capitals give no names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import dropwhile

from evoseek.corpus.language import STOP_WORDS
from evoseek.corpus.passages import UNSPACED

_UPPER = "".join(chr(code) for code in range(0x10000) if chr(code).isupper())
_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
# What is no part of a word. (`\w` would leave out the vowels that Indic scripts write as marks.)
_BREAKS = (
    r"\s!-/:-@\[-`{-~\u00a1-\u00bf\u00d7\u00f7\u2010-\u206f\u3000-\u303f\uff01-\uff0f\uff1a-\uff20"
    r"\u060c\u061b\u061f\u0964\u0965"
)
_IN_WORD = f"[^{_BREAKS}{UNSPACED}]"
_WORD = re.compile(f"[{UNSPACED}]|{_IN_WORD}+")

_MONTH = "(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_YEAR = r"(?:1\d{3}|20\d{2})(?!\d|[.,:/-]\d|[A-Za-z_%])"
_DATE = re.compile(
    r"(?<![\d.,:/A-Za-z_-])(?:"
    r"\d{4}-\d\d-\d\d(?!\d)"
    r"|\d{1,2}[./]\d{1,2}[./]\d{4}(?!\d)"
    r"|\d{4}年(?:\d{1,2}月(?:\d{1,2}日)?)?"
    rf"|\d{{1,2}}\.? (?:de )?[^\W\d_]{{3,}} (?:de )?{_YEAR}"
    rf"|{_MONTH} (?:\d{{1,2}}, )?{_YEAR}"
    rf"|{_YEAR})"
)
_NUMBER = re.compile(
    rf"(?<![^\W{UNSPACED}])(?<![.,-])\d+(?:[.,]\d+)*"
    rf"(?: ?%|[{_HAN}]{{1,2}}| ?(?:(?:thousand|million|billion|trillion) )?([^\W\d_{_HAN}]+))"
)
_NO_UNITS = STOP_WORDS | {"s", "st", "nd", "rd", "th"}

_CAPITALISED = rf"(?:(?:[{_UPPER}]\.)+|[{_UPPER}]{_IN_WORD}*(?:[-’'](?!s\b){_IN_WORD}+)*)"
_CONNECTOR = (
    "(?:of|the|de|del|della|der|den|des|di|da|do|dos|das|du|la|le|les|las|los|el|al|van|von|zu|ter|av|af|y|bin|ibn)"
)
_NAME = re.compile(
    rf"(?<![\w’'-]){_CAPITALISED}(?:[ \u00a0]+(?:{_CONNECTOR}[ \u00a0]+){{0,2}}(?:[dl][’'])?{_CAPITALISED})*"
)
_CONNECTED = re.compile(rf"(?<![ \u00a0])(?:[ \u00a0]++{_CONNECTOR})+[ \u00a0]++")
_SENTENCE_ENDS = frozenset(".!?…:。！？؟।|#*•–-\n")
_QUOTES = " \t\u00a0\"'“”‘’«»([_"

_LOWER_WORD = rf"[^{_BREAKS}{UNSPACED}{_UPPER}\d]{_IN_WORD}*(?:[-’']{_IN_WORD}+)*"
_LOWER_WORDS = re.compile(rf"(?<![^\s(\[\"“‘«]){_LOWER_WORD}(?: {_LOWER_WORD})+")
_HAN_RUN = re.compile(f"[{_HAN}]{{2,}}")


def split_dates(text: str) -> tuple[set[str], str]:
    """The dates and years, and the text with a comma instead of each: March in a date is no name.

    A year is a number from 1000 to 2099 without a separator. Dates with the month in words are found in any language
    if they name the day first, and in English.
    """
    dates = set(_DATE.findall(text))
    return dates, _DATE.sub(",", text) if dates else text


def numbers(text: str) -> set[str]:
    """Numbers with what they count or measure: `120 km`, `3.5 million inhabitants`, `42 %`."""
    return {
        match.group()
        for match in _NUMBER.finditer(text)
        if (unit := match[1]) is None or unit.casefold() not in _NO_UNITS
    }


def names(text: str) -> tuple[set[str], set[str]]:
    """Runs of capitalised words, with connectors between them (`University of the Arts`), and beside them what may be
    names: runs that stand at the start of a sentence alone, where any word has a capital, and the parts on both sides
    of a connector (`Neil Armstrong of NASA`).

    A stop word that opens a sentence is left out of the run, so what follows it is a name.
    """
    sure: set[str] = set()
    unsure: set[str] = set()
    for match in _NAME.finditer(text):
        start, run = match.start(), match.group()
        opens = _opens_sentence(text[max(0, start - 4) : start])
        name = _without_stop_words(run) if opens else run
        (unsure if opens and name == run else sure).add(name)
        parts = _CONNECTED.split(name)
        if len(parts) > 1:
            unsure.update(parts)
    return _telling(sure), _telling(unsure - sure)


def phrases(text: str) -> set[str]:
    """Two or three words in a row, in lower case and none of them a stop word; in Chinese and the like, characters."""
    found: set[str] = set()
    for chunk in _LOWER_WORDS.findall(text):
        for run in _content_runs(chunk):
            found.update(_pieces(run, " "))
    for run in _HAN_RUN.findall(text):
        found.update(_pieces(run, ""))
    return found


class TitleFinder:
    """Finds which of the given titles a text mentions, as whole words, whatever their letter case."""

    def __init__(self, titles: Iterable[str]) -> None:
        self._keys = {key for title in titles if (key := title_key(title))}
        self._lengths: dict[str, list[int]] = {}
        for first, length in sorted({(key.split(" ")[0], key.count(" ") + 1) for key in self._keys}):
            self._lengths.setdefault(first, []).append(length)

    def __call__(self, text: str) -> set[str]:
        """The keys (`title_key`) of the titles found."""
        words: list[str] = _WORD.findall(text.casefold())
        keys, lengths = self._keys, self._lengths
        return {
            key
            for start, word in enumerate(words)
            if word in lengths
            for length in lengths[word]
            if (key := " ".join(words[start : start + length]) if length > 1 else word) in keys
        }


def title_key(title: str) -> str:
    """The words of a title, by which it is found."""
    return " ".join(_WORD.findall(title.casefold()))


def _opens_sentence(before: str) -> bool:
    """Whether a sentence (or line) starts after these characters."""
    before = before.rstrip(_QUOTES)
    return not before or before[-1] in _SENTENCE_ENDS


def _without_stop_words(name: str) -> str:
    """The name from its first word on that is none."""
    return " ".join(dropwhile(lambda word: word.casefold() in STOP_WORDS, name.split(" ")))


def _telling(names: set[str]) -> set[str]:
    return {name for name in names if len(name) > 1 and name.casefold() not in STOP_WORDS}


def _content_runs(chunk: str) -> Iterator[list[str]]:
    """The words between stop words (and single letters)."""
    run: list[str] = []
    for word in chunk.split(" "):
        if len(word) > 1 and word not in STOP_WORDS:
            run.append(word)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _pieces(run: Sequence[str], gap: str) -> Iterator[str]:
    """Every two or three neighbours."""
    for length in (2, 3):
        for start in range(len(run) - length + 1):
            yield gap.join(run[start : start + length])
