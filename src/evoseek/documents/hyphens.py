"""Joins words that are hyphenated at the end of a line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import justext

_LETTERS = r"[^\W\d_]"
_PART = rf"({_LETTERS}{{2,60}})"
_CUT = re.compile(rf"(?<![\w-]){_PART}[-\u2010]\n[ \t]{{0,99}}{_PART}(?![\w-])([^\s\w-]{{0,9}})(?!\S)[ \t]?\n?")
_SOFT = re.compile("\u00ad(?:[ \t]{0,99}\n[ \t]{0,99})?")
_WORD = re.compile(rf"{_LETTERS}+(?:[-\u2010]{_LETTERS}+)*")
_AFTER_SUSPENDED = frozenset(("and", "or", "to", "und", "oder", "bzw", "sowie", "bis", "et", "ou", "en", "of"))
_FIRST = (
    "an any be every for here him how in into it no on out over some them there to under up what when where who with"
)
_NO_COMPOUND = frozenset(_FIRST.split(" "))  # inside, without, another
_HANGING = 8  # maximum indentation of a line in a list or a definition
_WITH_COMPOUNDS = ("English", "French", "Portuguese")  # languages that join common words with hyphens


def without_soft_hyphens(text: str) -> str:
    """Remove soft hyphens from a text, and join the words that were cut at them."""
    return _SOFT.sub("", text)


def join_cut_words(texts: Sequence[str]) -> list[str]:
    """Join words that were hyphenated at line ends in the pages of a text.

    A word is joined if the whole word occurs elsewhere in the text, or if one of its parts does not and is not a common
    word; a compound (`well-known`) keeps its hyphen. A capital after small letters is never joined.
    """
    texts = list(map(without_soft_hyphens, texts))
    if not any(map(_CUT.search, texts)):
        return texts
    known = {word.casefold() for text in texts for word in _WORD.findall(_CUT.sub(" ", text))}

    def joined(match: re.Match[str]) -> str:
        first, second, signs = match.groups()
        if _indent(match.string, match.start(2)) > _indent(match.string, match.start()) + _HANGING:
            return match[0]  # as in a table
        if second[0].isupper() and not (first.isupper() and second.isupper()):
            return match[0]
        parts = (first.casefold(), second.casefold())
        if "".join(parts) in known or any("".join(parts) in words for words in _common()):
            return f"{first}{second}{signs}\n"
        if parts[1] in _AFTER_SUSPENDED:
            return match[0]
        are_words = all(part in known for part in parts) or any(words.issuperset(parts) for words in _common())
        is_compound = "-".join(parts) in known or (are_words and parts[0] not in _NO_COMPOUND)
        return f"{first}{'-' if is_compound else ''}{second}{signs}\n"

    return [_CUT.sub(joined, text) for text in texts]


def _indent(text: str, place: int) -> int:
    """Return the width of the white space at the beginning of a place's line."""
    start = text.rfind("\n", 0, place) + 1
    return len(text[start:place]) - len(text[start:place].lstrip())


@cache
def _common() -> Sequence[frozenset[str]]:
    return [frozenset(justext.get_stoplist(language)) for language in _WITH_COMPOUNDS]
