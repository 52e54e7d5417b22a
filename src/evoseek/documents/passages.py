"""Cuts documents into passages of at most N words, at paragraph and sentence ends where possible."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise, takewhile
from typing import NamedTuple

from evoseek.documents.markdown import is_rule
from evoseek.errors import ConfigError
from evoseek.text.language import ABBREVIATIONS, CLOSING_ABBREVIATIONS, ORDINALS, STOP_WORDS
from evoseek.types import TERM, Document, Passage

# A word: one character of a script written without spaces, with its marks, or a run of others, which ends with a
# sentence that no space follows. Runs are cut at 100 characters, so that data without spaces (keys, encoded images)
# cannot make a passage of unbounded length.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
)
_PHRASES = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # of these, in which spaces stand between phrases
_OPENERS = "'\"“‘„‚«»‹›([{「『（【*_"
_CLOSERS = "'\"”’»›)\\]}」』）】〉》〕］｝〗〙〟｣＂＇*_"
_VOWELS = "".join(c for c in map(chr, range(0xE00, 0x3100)) if unicodedata.category(c)[0] == "M") + "\u0e33\u0eb3"
_WORD = re.compile(
    rf"[{UNSPACED}][{_VOWELS}]{{0,9}}|[^\s。！？｡{UNSPACED}]{{0,80}}[。！？｡]{{1,9}}[{_CLOSERS}]{{0,9}}|[^\s{UNSPACED}]{{1,100}}"
)
_AFTER_WORD = f"{_CLOSERS}“‘«‹"  # as in German, Danish and Polish
_APART = re.compile("[»›”]+")  # as in « Oui. »
_SENTENCE_END = re.compile(rf"[.!?…。！？｡．؟۔।॥։።။។៕།\u037e‼⁇⁈⁉][{_AFTER_WORD}]*(?:\[\d+\])*$")
_PARTS = re.compile(r"[/–—([{-]|^\W+")  # before the last part of a word
_LETTERS = re.compile(r"[\W\d_]")  # after the letters that a word begins with
_INITIALS = re.compile(r"[^\W\d_](?:\.[^\W\d_])*")  # as in A. S. Kalo, p.m., z.B.
_NUMBER = re.compile(r"\d{1,3}|[IVXL]{2,}")

# A heading may be followed by a line of punctuation.
_HEADING_LINES = re.compile(r"[^\n]*(?:\n {0,3}([^\w\s])\1*[ \t]*(?=\n|\Z))?")

_PHRASE_END = re.compile(f"[{_PHRASES}]\\s[{_PHRASES}]")

_NO_BORDER, _WITHIN_ROW, _PHRASE, _SENTENCE, _PARAGRAPH, _HEADING, _SECTION = range(7)


def split_document(document: Document, *, max_words: int = 100) -> list[Passage]:
    """Return passages `<document id>#<n>`, n from 0, in order and without overlap; together they hold every word.

    If a passage begins within the rows of a table, the column headings come before its own text. A row that fits is
    whole, and only then may the headings exceed `max_words`.

    No passage extends beyond a page, a row of a table, or a heading of the highest level that occurs several times (or
    of a higher level). Within these limits, it is cut before the last heading in the second half of the words that fit,
    else at the last paragraph end (an empty line) there, else at the last sentence or line end there, else at the last
    space between phrases (Thai), else at the last border of any kind that fits, else after `max_words` words. Cuts
    between a heading and its text are avoided. The heading of a passage is the nearest one above all of its text.
    """
    if max_words < 1:
        raise ConfigError(f"Passages need at least one word each, got max_words={max_words}. A usual value is 100.")
    outline = _Outline(document)
    tables = [table for table in find_tables(document.text) if count_words(table.headings) <= max_words]
    return [
        Passage(
            id=f"{document.id}#{number}",
            document_id=document.id,
            title=document.title,
            text=_headings_at(tables, start) + document.text[start:end],
            start=start,
            end=end,
            file=document.file,
            page=outline.page(start),
            heading=outline.heading(start, end),
        )
        for number, (start, end) in enumerate(_spans(document.text, outline, tables, max_words))
    ]


def count_words(text: str) -> int:
    """Count words as for the length of a passage."""
    return len(_WORD.findall(text))


def sentences(text: str) -> list[tuple[int, int]]:
    """Return where the sentences of a text begin and end. The end of a line ends a sentence."""
    words = [match.span() for match in _WORD.finditer(text)]
    borders = _borders(text, words, _Outline(Document("", "", text)))
    ends = [number for number, border in enumerate(borders, start=1) if border >= _SENTENCE]
    ends = [*ends, len(words)] if ends[-1:] != [len(words)] and words else ends
    return [(words[first][0], words[end - 1][1]) for first, end in pairwise([0, *ends])]


class Table(NamedTuple):
    """A table of a text: where its headings begin, and where each row begins; the last number is the table's end."""

    headings: str
    start: int
    rows: list[int]


def find_tables(text: str) -> Iterator[Table]:
    """Yield Markdown tables with a row of headings, most of them not empty, and a rule below it."""
    if "|" not in text:
        return
    starts = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
    lines, number = text.split("\n"), 1
    while number < len(lines):
        above, rule = lines[number - 1], lines[number].strip()
        if "|" not in above or not is_rule(rule) or is_rule(above):
            number += 1
            continue
        first = number + 1
        number = next((n for n in range(first, len(lines)) if "|" not in lines[n]), len(lines))
        names = [name.strip() for name in above.strip().strip("|").split("|")]
        if number > first and 2 * sum(map(bool, names)) > len(names):
            rows = [starts[n] for n in range(first, number)]
            yield Table(f"{above.strip()}\n{''.join(rule.split())}", starts[first - 2], [*rows, starts[number] - 1])


def _table_at(tables: Sequence[Table], place: int) -> Table | None:
    """Return the table with a row at a place of the text."""
    number = bisect_right(tables, place, key=lambda table: table.rows[0]) - 1
    return tables[number] if number >= 0 and place < tables[number].rows[-1] else None


def _headings_at(tables: Sequence[Table], place: int) -> str:
    """Return the column headings that must precede the text from a place on."""
    table = _table_at(tables, place)
    return f"{table.headings}\n" if table else ""


class _Outline:
    """The pages and headings of a document."""

    def __init__(self, document: Document) -> None:
        self._text, self.marks = document.text, document.marks
        self._starts = [mark.start for mark in self.marks]
        levels = Counter(mark.level for mark in self.marks if 0 < mark.level < TERM)
        self._highest = next((level for level in sorted(levels) if levels[level] > 1), max(levels, default=0))
        self._paths = list(self._headings())

    def _headings(self) -> Iterator[tuple[str, ...]]:
        """Yield, for each mark, the headings above the text after it, highest first."""
        above: list[tuple[int, str]] = []
        for mark in self.marks:
            above = [(level, heading) for level, heading in above if 0 < level < mark.level]
            above += [(mark.level, mark.heading)] if mark.heading else []
            yield tuple(heading for _, heading in above)

    def text_from(self, number: int) -> int:
        """Return where the text under a mark begins: after the lines of its heading."""
        mark = self.marks[number]
        found = _HEADING_LINES.match(self._text, mark.start) if mark.level and mark.heading else None
        return found.end() if found else mark.start

    def border(self, number: int) -> int:
        """Return the kind of border before a mark; none before a heading directly below another one."""
        mark = self.marks[number]
        follows_heading = mark.level and number and self.marks[number - 1].heading and self.marks[number - 1].level
        if follows_heading and not self._text[self.text_from(number - 1) : mark.start].strip():
            return _NO_BORDER
        return _SECTION if mark.level <= self._highest else _HEADING

    def page(self, start: int) -> int | None:
        before = bisect_right(self._starts, start)
        return self.marks[before - 1].page if before else None

    def heading(self, start: int, end: int) -> str | None:
        """Return the lowest heading above all text of a range; if the range has only headings, the last of them."""
        first, last = bisect_right(self._starts, start) - 1, bisect_left(self._starts, end)
        if first < 0 and self._text[start : min([end, *self._starts[:1]])].strip():
            return None
        numbers = range(max(first, 0), last)
        paths = [self._paths[n] for n in numbers if self._has_text(n, start, end)] or [
            self._paths[n] for n in numbers[-1:]
        ]
        shared = list(takewhile(lambda names: len(set(names)) == 1, zip(*paths, strict=False)))
        return shared[-1][0] if shared else None

    def _has_text(self, number: int, start: int, end: int) -> bool:
        """Return whether a range has text under a mark, besides the lines of its heading."""
        end = min([end, *self._starts[number + 1 : number + 2]])
        return bool(self._text[max(start, self.text_from(number)) : end].strip())


def _spans(text: str, outline: _Outline, tables: Sequence[Table], max_words: int) -> Iterator[tuple[int, int]]:
    words = [match.span() for match in _WORD.finditer(text)]
    if len(words) <= max_words and not outline.marks:  # so nothing is cut
        if words:
            yield words[0][0], words[-1][1]
        return
    borders = _borders(text, words, outline)
    starts = [start for start, _ in words]
    _keep_rows(borders, starts, tables, max_words)
    ends = [number for number, kind in enumerate(borders, start=1) if kind == _SECTION] + [len(words)]
    first = 0
    for end in ends:
        while first < end:
            last = min(first + _room(starts, first, _table_at(tables, starts[first]), max_words), end)
            last = _best_cut(borders, first, last) if last < end else last
            yield words[first][0], words[last - 1][1]
            first = last


def _borders(text: str, words: list[tuple[int, int]], outline: _Outline) -> list[int]:
    borders, before = list[int](), ""
    for (start, end), (following, ending) in zip(words, [*words[1:], (len(text), len(text))], strict=False):
        word, gap, opens = text[start:end], text[end:following], borders[-1:] != [_NO_BORDER]
        border = _border(word, gap, text[following:ending], opens=opens)
        if borders[-1:] == [_SENTENCE] and "\n" not in before and _APART.fullmatch(word):
            borders[-1], border = _NO_BORDER, max(border, _SENTENCE)
        borders.append(border)
        before = gap
    starts = [start for start, _ in words]
    for number, mark in enumerate(outline.marks):
        first, end = bisect_left(starts, mark.start), bisect_left(starts, outline.text_from(number))
        borders[first:end] = [_NO_BORDER] * (end - first)
        if first:
            borders[first - 1] = max(outline.border(number), borders[first - 1])
    return borders


def _keep_rows(borders: list[int], starts: list[int], tables: Sequence[Table], max_words: int) -> None:
    """Make a cut within a row of a table the last choice; also a cut between headings and first row, if these fit
    together."""
    for table in tables:
        ends = table.rows[1:]
        if bisect_left(starts, ends[0]) - bisect_left(starts, table.start) > max_words:
            ends = table.rows
        for start, end in pairwise([table.start, *ends]):
            first, last = bisect_left(starts, start), bisect_left(starts, end) - 1
            borders[first:last] = [_WITHIN_ROW if border else _NO_BORDER for border in borders[first:last]]


def _room(starts: list[int], first: int, table: Table | None, max_words: int) -> int:
    """Return how many words may follow the column headings within a table: the whole row if it fits at all."""
    if table is None:
        return max_words
    place = bisect_right(table.rows, starts[first])
    row = bisect_left(starts, table.rows[place]) - first
    room = max_words - count_words(table.headings)
    if row <= max_words:
        return max(row, room)
    return max(room, max_words // 2, 1)


def _border(word: str, gap: str, following: str, *, opens: bool) -> int:
    if gap.count("\n") > 1:
        return _PARAGRAPH
    if "\n" in gap or (_SENTENCE_END.search(word) and not _is_within(word, following, opens=opens)):
        return _SENTENCE
    return _PHRASE if _PHRASE_END.fullmatch(f"{word[-1]}{gap[:1]}{following[:1]}") else _NO_BORDER


def _is_within(word: str, following: str, *, opens: bool) -> bool:
    """Return whether a sentence continues after a word with a full stop: an abbreviation, an initial, an ordinal
    number, the number of an item, which opens the sentence; or a Japanese quotation whose speaker follows."""
    if following[:1] == "と":
        return word[-1] in "」』"
    pointed, after = word.rstrip(_AFTER_WORD), following.lstrip(_OPENERS)
    if pointed[-1:] != ".":
        return False
    bare = _PARTS.split(pointed[:-1])[-1]
    if _NUMBER.fullmatch(bare):
        return after[:1].islower() or ORDINALS.match(after) is not None or (opens and bare.isdigit())
    if bare in CLOSING_ABBREVIATIONS:
        return not after[:1].isupper()
    is_sentence = after[:1].isupper() and after[1:2] != "." and _LETTERS.split(after)[0].lower() in STOP_WORDS
    if _INITIALS.fullmatch(bare):
        return opens or not is_sentence
    forms = {bare, bare[:1].lower() + bare[1:], bare.capitalize() if after[:1].isdigit() else bare}  # as in no. 5
    return not ABBREVIATIONS.isdisjoint(forms) and not is_sentence


def _best_cut(borders: list[int], first: int, last: int) -> int:
    """Return where to end a passage of the words first..last-1: an index in (first, last]."""
    middle = first + (last - first + 1) // 2 - 1
    for low, least in (
        (middle, _HEADING),
        (middle, _PARAGRAPH),
        (first, _SENTENCE),
        (first, _PHRASE),
        (first, _WITHIN_ROW),
    ):
        for cut in range(last, low, -1):
            if borders[cut - 1] >= least:
                return cut
    return last
