"""Cutting a page's text into segments that a model can read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

_WORD = re.compile(r"\S{1,12}\s*")  # a longer word counts as several, so that a bound on words also bounds characters
_END = re.compile(r"""[.!?]["'\u201d\u2019)\]]*\s+\Z|[。！？]\s*\Z|\n\s*\Z""")  # of a sentence, line or paragraph


def segments_of(text: str, max_words: int) -> Iterator[str]:
    """Cut a text into segments of at most `max_words` words, in order, with nothing lost but white space between them.

    A segment ends with the last sentence or line that ends in its second half; if none does, with a word. Every 12
    characters of a word count as a word, since hostile text and some scripts have no spaces.
    """
    rest, words = (found[0] for found in _WORD.finditer(text.strip())), list[str]()
    while words := [*words, *islice(rest, max_words + 1 - len(words))]:  # one more than fits, if there is one
        end = max_words
        if end < len(words):
            whole = (i for i in range(end, max_words // 2, -1) if _END.search(words[i - 1]))
            end = next(whole, end)
        yield "".join(words[:end]).rstrip()
        words = words[end:]


def beginning_of(text: str, max_words: int) -> str:
    """The first segment of a text; all of it, if it is short enough."""
    return next(segments_of(text, max_words), "")


def count_words(text: str) -> int:
    """The words of a text, as `segments_of` counts them."""
    return len(_WORD.findall(text))
