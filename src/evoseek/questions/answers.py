"""Answer sets: the answers for which questions are written, mined from a corpus or given as a file.

A file is JSON lines, one answer each: {"answer": "Lake Geneva"}. Mined answers are titles, names, dates, numbers and
phrases that passages mention, recognised only by their form, without a model or a dictionary of names. So this works in
any language, with errors. Texts in scripts without capitals yield no names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import dropwhile, groupby
from pathlib import Path

from evoseek.documents.passages import UNSPACED
from evoseek.errors import DataError
from evoseek.questions.questions import folded
from evoseek.text.language import STOP_WORDS
from evoseek.text.rows import read_rows
from evoseek.types import Passage

MAX_WORDS, MAX_CHARACTERS = 5, 80
MOST_OF_A_KIND = 10_000
MIN_REPEATS = 2  # passages in which a phrase occurs
_ARTICLES = frozenset({"a", "an", "the"})
_DISAMBIGUATION = re.compile(r"(?<!\s)\s*+\([^()]*+\)\s*+$")  # Mercury (planet)
_Tally = dict[str, tuple[str, int]]
"""By normal form: the first spelling, and the number of passages."""

_UPPER = "".join(chr(code) for code in range(0x10000) if chr(code).isupper())
_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
# Characters outside words. (`\w` would exclude the vowels that Indic scripts write as marks.)
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


def mine_answers(passages: Iterable[Passage]) -> list[str]:
    """Mine titles, named entities, dates, numbers with units and frequent phrases that can serve as answers.

    The path back from an answer begins with a passage that states something else's relation to it. So only the text
    (not the title) of passages with another title counts, and there must be at least one such passage. An answer has at
    most 5 words and 80 characters, and a letter or digit in a word that is not a stop word.

    Kinds come in this order. Within a kind, the answers that most passages mention come first, since they have more
    paths back. At most 10,000 are kept of each kind. If answers differ only in letter case and white space, the first
    is kept. All passages are held in memory.
    """
    kept = list(passages)
    titles = _usable_titles(kept)
    find_titles = TitleFinder(titles)
    tallies: dict[str, _Tally] = {kind: {} for kind in ("title", "entity", "date", "number", "phrase")}
    unsure: _Tally = {}
    for passage in kept:
        own = folded(_bare_title(passage.title))
        dates, text = split_dates(passage.text)
        sure, perhaps = names(text)
        _count(tallies["title"], (titles[key] for key in find_titles(passage.text)), own)
        _count(tallies["entity"], sure, own)
        _count(tallies["date"], dates, own)
        _count(tallies["number"], numbers(text), own)
        _count(tallies["phrase"], phrases(text), own)
        _count(unsure, perhaps, own)
    for form, (text, count) in tallies["entity"].items():
        tallies["entity"][form] = text, count + unsure.get(form, ("", 0))[1]
    return list(_best(tallies))


def load_answers(path: Path) -> list[str]:
    """Read the answers of a file, in order. If answers differ only in letter case and spaces, the first is kept.

    Raises DataError, naming file and line, if the file cannot be read, has no answer, or a line cannot be used.
    """
    answers: dict[str, str] = {}
    for answer in read_rows(path, _answer, noun="answer", keys='"answer"'):
        answers.setdefault(folded(answer), answer)
    return list(answers.values())


def _answer(row: Mapping[str, object], _number: int) -> str:
    text = row.get("answer")
    if not isinstance(text, str) or not _has_word(folded(text)):
        raise DataError(
            f'It holds no usable answer, but {text!r}. Expected a line such as {{"answer": "Lake Geneva"}}.'
        )
    return text.strip()


def _count(tally: _Tally, texts: Iterable[str], own: str) -> None:
    """Count the mentions in a passage, except its own subject. They are sorted, so that the first spelling does not
    depend on the order of a set."""
    for form, text in {folded(text): text for text in sorted(texts, reverse=True)}.items():
        if form != own:
            first, count = tally.get(form, (text, 0))
            tally[form] = first, count + 1


def _best(tallies: Mapping[str, _Tally]) -> Iterator[str]:
    taken: set[str] = set()
    for kind, tally in tallies.items():
        least = MIN_REPEATS if kind == "phrase" else 1
        usable = (
            (form, text, count)
            for form, (text, count) in tally.items()
            if count >= least and form not in taken and _is_usable(form)
        )
        best = sorted(usable, key=lambda item: (-item[2], item[0]))[:MOST_OF_A_KIND]
        taken.update(form for form, _, _ in best)
        yield from (" ".join(text.split()) for _, text, _ in best)


def _is_usable(form: str) -> bool:
    words = form.split(" ")
    short = len(form) <= MAX_CHARACTERS and len(words) <= MAX_WORDS
    return short and not STOP_WORDS.issuperset(words) and _has_word(form)


def _has_word(form: str) -> bool:
    """Return whether an answer has a word besides punctuation and articles. An empty normal form would match any
    other."""
    return any(character.isalnum() for word in form.split(" ") if word not in _ARTICLES for character in word)


def _usable_titles(passages: Sequence[Passage]) -> dict[str, str]:
    """Return titles by their search keys; if keys are equal, the first title."""
    bare = (_bare_title(passage.title) for passage in reversed(passages))
    return {title_key(title): title for title in bare if _is_usable(folded(title))}


def _bare_title(title: str) -> str:
    return _DISAMBIGUATION.sub("", title).strip()


def split_dates(text: str) -> tuple[set[str], str]:
    """Return the dates and years, and the text with a comma in place of each: March in a date is not a name.

    A year is a number from 1000 to 2099 without a separator. Dates with the month in words are found in English, and in
    any language if they name the day first.
    """
    dates = set(_DATE.findall(text))
    return dates, _DATE.sub(",", text) if dates else text


def numbers(text: str) -> set[str]:
    """Find numbers with units or counted things: `120 km`, `3.5 million inhabitants`, `42 %`."""
    return {
        match.group()
        for match in _NUMBER.finditer(text)
        if (unit := match[1]) is None or unit.casefold() not in _NO_UNITS
    }


def names(text: str) -> tuple[set[str], set[str]]:
    """Find names: runs of capitalised words, with connectors between them (`University of the Arts`). Return also
    possible names: runs that occur only at the start of a sentence, where any word has a capital, and the parts on both
    sides of a connector (`Neil Armstrong of NASA`).

    A stop word that opens a sentence is left out of the run, so the words after it are a name.
    """
    sure: set[str] = set()
    unsure: set[str] = set()
    for match in _NAME.finditer(text):
        start, run = match.start(), match.group()
        before = text[max(0, start - 4) : start].rstrip(_QUOTES)
        opens = not before or before[-1] in _SENTENCE_ENDS
        name = " ".join(dropwhile(lambda word: word.casefold() in STOP_WORDS, run.split(" "))) if opens else run
        (unsure if opens and name == run else sure).add(name)
        parts = _CONNECTED.split(name)
        if len(parts) > 1:
            unsure.update(parts)
    return _significant(sure), _significant(unsure - sure)


def phrases(text: str) -> set[str]:
    """Find two or three consecutive lower-case words without stop words; in Chinese and similar scripts, characters."""
    found: set[str] = set()
    for chunk in _LOWER_WORDS.findall(text):
        for has_content, run in groupby(chunk.split(" "), lambda word: len(word) > 1 and word not in STOP_WORDS):
            found.update(_pieces(list(run), " ") if has_content else ())
    for run in _HAN_RUN.findall(text):
        found.update(_pieces(run, ""))
    return found


class TitleFinder:
    """Finds the titles that a text mentions, as whole words in any letter case."""

    def __init__(self, titles: Iterable[str]) -> None:
        self._keys = {key for title in titles if (key := title_key(title))}
        self._lengths: dict[str, list[int]] = {}
        for first, length in sorted({(key.split(" ")[0], key.count(" ") + 1) for key in self._keys}):
            self._lengths.setdefault(first, []).append(length)

    def __call__(self, text: str) -> set[str]:
        """Return the keys (`title_key`) of titles in a text."""
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
    """Return the words of a title, which serve as its search key."""
    return " ".join(_WORD.findall(title.casefold()))


def _significant(names: set[str]) -> set[str]:
    return {name for name in names if len(name) > 1 and name.casefold() not in STOP_WORDS}


def _pieces(run: Sequence[str], gap: str) -> Iterator[str]:
    for length in (2, 3):
        for start in range(len(run) - length + 1):
            yield gap.join(run[start : start + length])
