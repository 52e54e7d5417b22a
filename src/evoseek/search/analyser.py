"""Text to index terms, the same for documents and for queries."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

import tantivy

# To be incremented whenever a query would miss what an index that is there holds: one of another version cannot be
# opened.
ANALYSER_VERSION = 1
MAX_TOKEN_CHARACTERS = 64  # longer ones (keys, encoded data) are cut: nobody searches for the rest

# Scripts whose words are not set apart: Han, kana, Hangul.
_CJK = re.compile(
    "([\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
    "\uf900-\ufaff\U00020000-\U000323af]+)"
)
# Accents of Latin, Greek and Cyrillic, and characters that are not seen (soft hyphen, joiners). The marks of other
# scripts are vowels or change the word, so they stay.
_FOLDED_AWAY = re.compile("[\u0300-\u036f\u00ad\u200b-\u200d\u2060\ufeff]+")
# Letters that Unicode does not take apart into a base and an accent.
_LETTERS = str.maketrans(
    {"æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ð": "d", "ħ": "h", "ı": "i", "ł": "l", "ŧ": "t", "þ": "th"}
)
_MARKS = "".join(chr(code) for code in range(0x370, 0x12000) if unicodedata.category(chr(code)) in ("Mn", "Mc"))
_WORD = re.compile(rf"[^\W_]+(?:[{_MARKS}]+[^\W_]*)*")
_ASCII_WORD = re.compile(r"[a-z0-9]+")
_IDENTIFIER = re.compile(r"(?<![^\W_])[^\W_]++(?:[_.][^\W_]++)+")  # possessive: a long run is read once
# Normalising a run of marks on one character takes time by the square of its length. So a run (of what is no part of a
# word, which marks are not) is cut where it is longer than any script has them.
_RUN = re.compile(r"([^\w\s\x00-\x7f][^\w\s\x00-\x7f]{63})[^\w\s\x00-\x7f]+")
_ENGLISH = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).filter(tantivy.Filter.stemmer("english")).build()


@dataclass(frozen=True, slots=True)
class Analyser:
    """NFKC, case folding, accent folding, then words; runs of Chinese, Japanese and Korean become overlapping pairs
    of characters (a run of one stays one). With `stemming="english"` words are cut to their stems (Snowball)."""

    stemming: Literal["none", "english"] = "none"

    def terms(self, text: str) -> list[str]:
        """What a text is searched by: its tokens, then each identifier whole (`cache_size`, `os.path`, `3.8.2`), which
        is rarer than its words are."""
        whole = _IDENTIFIER.findall(text.lower() if text.isascii() else fold(text))
        return [*self.tokens(text), *(name[:MAX_TOKEN_CHARACTERS] for name in whole)]

    def tokens(self, text: str) -> list[str]:
        """The words of a text in order, repeated as often as they occur. None holds white space."""
        # ASCII has nothing to fold but case, and that is much faster.
        found = _ASCII_WORD.findall(text.lower()) if text.isascii() else _unicode_words(text)
        tokens = [token[:MAX_TOKEN_CHARACTERS] for token in found]
        return _ENGLISH.analyze(" ".join(tokens)) if self.stemming == "english" else tokens


def _unicode_words(text: str) -> list[str]:
    words: list[str] = []
    for number, part in enumerate(_CJK.split(fold(text))):  # runs of CJK at odd places
        words += _pairs(part) if number % 2 else _WORD.findall(part)
    return words


def fold(text: str) -> str:
    """The text without differences of width, case and accent: `Ｃafé`, `CAFÉ` and `cafe` become one."""
    text = text.replace("\uff9e", "\u3099").replace("\uff9f", "\u309a")  # half-width marks, which count as letters
    text = _FOLDED_AWAY.sub("", _normalised("NFD", _normalised("NFKC", text).casefold()))
    return _normalised("NFKC", text).translate(_LETTERS)


def _normalised(form: Literal["NFD", "NFKC"], text: str) -> str:
    """`text` in a normal form of Unicode, with runs of marks cut."""
    return unicodedata.normalize(form, _RUN.sub(r"\1", text))


def _pairs(run: str) -> list[str]:
    return [run[start : start + 2] for start in range(len(run) - 1)] or [run]
