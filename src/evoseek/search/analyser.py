"""Splits text into index terms, in the same way for documents and queries."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import tantivy

from evoseek.text.scripts import UNSPACED, fold_characters, normalised, script, whole_numbers

# Increment it when queries would miss contents of existing indexes. An index is searched by the terms of its version.
ANALYSER_VERSION = 2
MAX_TOKEN_CHARACTERS = 64  # longer ones (keys, encoded data) are cut: nobody searches for the rest

_MARKS = "".join(chr(code) for code in range(0x370, 0x12000) if unicodedata.category(chr(code)) in ("Mn", "Mc"))


def _runs() -> re.Pattern[str]:
    """Return a pattern for runs of letters, with marks, in scripts without spaces, by the names of the characters."""
    names = UNSPACED | {"HANGUL"}
    codes = [code for code in range(0xE00, 0xFFDD) if script.__wrapped__(chr(code)) in names]
    letters = "".join(chr(code) for code in codes if chr(code) not in _MARKS)
    return re.compile(f"((?:[\u3007{letters}\U0001aff0-\U0001b16f\U00020000-\U000323af][{_MARKS}]*)+)")


_RUNS = _runs()
_CHARACTER = re.compile(f"[^{_MARKS}][{_MARKS}]*")
_WORD = re.compile(rf"[^\W_]+(?:[{_MARKS}]+[^\W_]*)*")
_ASCII_WORD = re.compile(r"[a-z0-9]+")
_IDENTIFIER = re.compile(r"(?<![^\W_])[^\W_]++(?:[_.][^\W_]++)+")  # possessive: a long run is read once
_SIGNED = re.compile(
    r"(?<![\w*#+])(?:[^\W\d_]++(?:\+\+(?![^\W\d_]|\+)|\+(?![\w+]))|[a-z](?:\*(?![\w*])|\#(?![\w#])))"
    r"|(?<![^\s(\[\"'])\.[^\W\d_]\w*+|(?<![\w&])[^\W\d_]++(?:&[^\W\d_]++)+(?![\w&])"
)
_SIGN = re.compile(r"[+*#&]|[^\w.]\.\w|^\.")  # without one there is no such name
_POINTED = re.compile(r"(?<![\w.])(?:[^\W\d_]\.){2,}[^\W\d_](?!\w)")  # U.S.A.
_ENGLISH = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).filter(tantivy.Filter.stemmer("english")).build()

# Of version 1
_FIRST_RUNS = re.compile(
    "([\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
    "\uf900-\ufaff\U00020000-\U000323af]+)"
)
_FIRST_FOLDED_AWAY = re.compile("[\u0300-\u036f\u00ad\u200b-\u200d\u2060\ufeff]+")
_FIRST_LETTERS = str.maketrans(
    {"æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ð": "d", "ħ": "h", "ı": "i", "ł": "l", "ŧ": "t", "þ": "th"}
)


@dataclass(frozen=True, slots=True)
class Analyser:
    """Splits folded characters (`fold_characters`) into words. Runs in Korean or a script without spaces between words
    become overlapping pairs of characters (a single character stays one). With `stemming="english"` words are cut to
    their stems (Snowball). `version` is the version of the searched index."""

    stemming: Literal["none", "english"] = "none"
    version: int = ANALYSER_VERSION

    def terms(self, text: str) -> list[str]:
        """Return the search terms of a text: its tokens, then rarer terms. These are whole identifiers (`cache_size`,
        `os.path`, `3.8.2`), names with their signs (`c++`, `r&d`), numbers without separators, abbreviations without
        points (`usa`), and each character of a run that became pairs."""
        plain = self._folded(text)
        whole = _IDENTIFIER.findall(plain)
        if self.version > 1:
            whole += whole_numbers(plain)
            if _SIGN.search(plain):
                whole += _SIGNED.findall(plain)
            whole += (name.replace(".", "") for name in _POINTED.findall(plain))
            if not plain.isascii() and _RUNS.search(plain):
                whole += _singles(plain)
        return [*self._tokens(plain), *(name[:MAX_TOKEN_CHARACTERS] for name in whole)]

    def tokens(self, text: str) -> list[str]:
        """Return the words of a text in order, repeated as often as they occur. They contain no white space."""
        return self._tokens(self._folded(text))

    def _folded(self, text: str) -> str:
        return fold_characters(text) if self.version > 1 else _first_fold(text)

    def _tokens(self, plain: str) -> list[str]:
        runs = _RUNS if self.version > 1 else _FIRST_RUNS
        found = _ASCII_WORD.findall(plain) if plain.isascii() else _unicode_words(plain, runs)
        tokens = [token[:MAX_TOKEN_CHARACTERS] for token in found]
        return _ENGLISH.analyze(" ".join(tokens)) if self.stemming == "english" else tokens


def _unicode_words(plain: str, runs: re.Pattern[str]) -> list[str]:
    words: list[str] = []
    for number, part in enumerate(runs.split(plain)):  # runs of characters at odd places
        words += _pairs(_CHARACTER.findall(part)) if number % 2 else _WORD.findall(part)
    return words


def _pairs(run: list[str]) -> list[str]:
    return [one + other for one, other in pairwise(run)] or run


def _singles(plain: str) -> Iterator[str]:
    for run in _RUNS.findall(plain):
        if len(characters := _CHARACTER.findall(run)) > 1:
            yield from characters


def _first_fold(text: str) -> str:
    """Fold as in version 1."""
    if text.isascii():
        return text.lower()
    text = text.replace("\uff9e", "\u3099").replace("\uff9f", "\u309a")
    text = _FIRST_FOLDED_AWAY.sub("", normalised("NFD", normalised("NFKC", text).casefold()))
    return normalised("NFKC", text).translate(_FIRST_LETTERS)
