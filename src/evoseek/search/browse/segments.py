"""A page's text in pieces that a model can read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

_WORD = re.compile(r"\S{1,12}\s*")  # a longer word counts as several, so a bound of words bounds characters too
_END = re.compile(r"""[.!?]["'\u201d\u2019)\]]*\s+\Z|[。！？]\s*\Z|\n\s*\Z""")  # of a sentence, line or paragraph


def segments_of(text: str, max_words: int) -> Iterator[str]:
    """Cut a text into segments of at most `max_words` words, in order, with nothing lost but white space between them.

    A segment ends with the last sentence or line that ends in its second half; if none does, with a word. Of a word
    each 12 characters count as one: hostile text knows no spaces, and some scripts do without.
    """
    rest, words = (found[0] for found in _WORD.finditer(text.strip())), list[str]()
    while words := [*words, *islice(rest, max_words + 1 - len(words))]:  # one more than fit, if there is one more
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
