"""Cutting documents into passages of at most so many words, at paragraph and sentence ends where possible."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator

from evoseek.errors import ConfigError
from evoseek.types import Document, Mark, Passage

# A word: one character of a script written without spaces, or a run of others. Runs are cut at 100 characters, so
# that data without spaces (keys, encoded images) cannot make a passage of unbounded length.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
)
_WORD = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]{{1,100}}")
_SENTENCE_END = re.compile(r"[.!?…。！？｡؟।]['\"”’»)\]]*$")

_NO_BORDER, _SENTENCE, _PARAGRAPH = 0, 1, 2


def split_document(document: Document, *, max_words: int = 100) -> list[Passage]:
    """Passages `<document id>#<n>`, n from 0, in order and without overlap; together they hold every word.

    Each is cut at the last paragraph end (an empty line) in the second half of the words that fit, else at the last
    sentence or line end there, else at the last border of any kind that fits, else after `max_words` words. The page
    and heading of a passage are those where it begins.
    """
    if max_words < 1:
        raise ConfigError(f"Passages need at least one word each, got max_words={max_words}. A usual value is 100.")
    return [_passage(document, number, *span) for number, span in enumerate(_spans(document.text, max_words))]


def _passage(document: Document, number: int, start: int, end: int) -> Passage:
    before = bisect_right(document.marks, start, key=lambda mark: mark.start)
    mark = document.marks[before - 1] if before else Mark(0)
    return Passage(
        id=f"{document.id}#{number}",
        document_id=document.id,
        title=document.title,
        text=document.text[start:end],
        start=start,
        end=end,
        file=document.file,
        page=mark.page,
        heading=mark.heading,
    )


def _spans(text: str, max_words: int) -> Iterator[tuple[int, int]]:
    """Character ranges of the passages."""
    words = [match.span() for match in _WORD.finditer(text)]
    borders = _borders(text, words)
    first = 0
    while first < len(words):
        last = first + max_words
        if last < len(words):
            last = _best_cut(borders, first, last)
        last = min(last, len(words))
        yield words[first][0], words[last - 1][1]
        first = last


def _borders(text: str, words: list[tuple[int, int]]) -> list[int]:
    """For each word the kind of border that follows it."""
    return [
        _border(text[start:end], text[end:following])
        for (start, end), following in zip(words, [*(start for start, _ in words[1:]), len(text)], strict=False)
    ]


def _border(word: str, gap: str) -> int:
    if gap.count("\n") > 1:
        return _PARAGRAPH
    if "\n" in gap or _SENTENCE_END.search(word):
        return _SENTENCE
    return _NO_BORDER


def _best_cut(borders: list[int], first: int, last: int) -> int:
    """Where to end a passage of the words first..last-1: an index in (first, last]."""
    middle = first + (last - first + 1) // 2 - 1
    for low, kinds in ((middle, (_PARAGRAPH,)), (middle, (_SENTENCE,)), (first, (_PARAGRAPH, _SENTENCE))):
        for cut in range(last, low, -1):
            if borders[cut - 1] in kinds:
                return cut
    return last
