"""Words that the end of a line cut in two."""

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
_HANGING = 8  # characters that a line of a list or a definition may begin further in
_WITH_COMPOUNDS = ("English", "French", "Portuguese")  # languages in which common words make compounds with hyphens


def without_soft_hyphens(text: str) -> str:
    """Return a text without the signs of where a word may be cut, and whole where it was."""
    return _SOFT.sub("", text)


def join_cut_words(texts: Sequence[str]) -> list[str]:
    """Return the pages of a text, with the words whole that were cut at the ends of lines.

    A word is joined if the joined one occurs elsewhere in the text, or one of its parts does not and is no common word;
    a compound (`well-known`) keeps its hyphen. What begins with a capital, after small letters, is left as it is.
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
    """Return the white space that the line of a place begins with."""
    start = text.rfind("\n", 0, place) + 1
    return len(text[start:place]) - len(text[start:place].lstrip())


@cache
def _common() -> Sequence[frozenset[str]]:
    return [frozenset(justext.get_stoplist(language)) for language in _WITH_COMPOUNDS]
