"""Texts in any script: which script a character belongs to, a folded form to compare texts by, and lengths.

Everything follows from the Unicode character database of Python's standard library: no model, no word list, no network.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import lru_cache

_KANA = "KANA"
_SCRIPTS = {"CJK": "HAN", "HIRAGANA": _KANA, "KATAKANA": _KANA, "KATAKANA-HIRAGANA": _KANA, "IDEOGRAPHIC": "HAN"}
UNSPACED = frozenset({"HAN", _KANA, "THAI", "LAO", "KHMER", "MYANMAR"})
_CHARACTERS_PER_WORD = {"HAN": 2, _KANA: 2, "HANGUL": 2, "THAI": 4, "LAO": 4, "KHMER": 4, "MYANMAR": 4}
_WIDE = frozenset({"HAN", _KANA, "HANGUL"})  # one of their characters says as much as two letters

# Accents, and the vowel points of Arabic and Hebrew; not the vowels that Indic and Thai script write as marks.
_ACCENTS = re.compile("[\u0300-\u036f\u0591-\u05c7\u064b-\u0652\u0670\u0640]")
_DIGIT_GROUPS = re.compile(r"(?<=\d)[,.\u00a0\u202f](?=\d{3}(?!\d))")


def well_formed(text: str) -> str:
    """The text with U+FFFD for half a surrogate pair, which UTF-8 and tokenizers refuse."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@lru_cache(maxsize=1 << 16)
def script(character: str) -> str:
    """The script of a letter, such as LATIN, CYRILLIC, HAN, KANA or THAI; "" for what is no letter."""
    if unicodedata.category(character)[0] not in "LM":
        return ""
    first = unicodedata.name(character, "").partition(" ")[0]
    return "" if first in ("COMBINING", "MODIFIER", "FEMININE", "MASCULINE") else _SCRIPTS.get(first, first)


def script_counts(text: str) -> Counter[str]:
    """How many letters of each script a text has. Japanese counts as two scripts, KANA and HAN."""
    counts = Counter(map(script, text))
    counts.pop("", None)
    return counts


def family(counts: Counter[str]) -> str:
    """The script that a text is written in, by its `script_counts`: where there is kana or hangul, Chinese characters
    belong to it. "" without letters."""
    for owner in (_KANA, "HANGUL"):
        if counts[owner] and counts[owner] + counts["HAN"] >= 0.5 * counts.total():
            return owner
    return max(counts, key=lambda name: (counts[name], name), default="")


@lru_cache(maxsize=1 << 16)
def _of_word(character: str) -> str:
    return character if unicodedata.category(character)[0] in "LMN" else " "


def fold(text: str, *, accents: bool = False) -> str:
    """The form of a text in which it is compared: words in lower case, with single spaces between them, and without
    accents unless these are kept.

    Full-width and other compatibility forms are the plain ones, and digits are not grouped: `2,400` is `2400`.
    """
    plain = unicodedata.normalize("NFKD", _DIGIT_GROUPS.sub("", text))
    plain = unicodedata.normalize("NFC", plain if accents else _ACCENTS.sub("", plain)).casefold()
    return " ".join("".join(map(_of_word, plain)).split())


def fold_places(text: str) -> tuple[str, list[int]]:
    """The folded characters of a text, with a space for each one that belongs to no word, and the place in the text
    that each of them comes from."""
    grouping = {match.start() for match in _DIGIT_GROUPS.finditer(text)}
    characters: list[str] = []
    places: list[int] = []
    for place, character in enumerate(text):
        if place not in grouping:
            folded = _fold_character(character)
            characters += folded
            places += [place] * len(folded)
    return "".join(characters), places


@lru_cache(maxsize=1 << 16)
def _fold_character(character: str) -> str:
    """Nothing for an accent."""
    return fold(character) or " " * (not _ACCENTS.match(character))


def length(text: str) -> tuple[float, int]:
    """Words and characters, comparable between scripts. Two Chinese, Japanese or Korean characters count as a word, or
    four Thai ones, where spaces separate fewer; Chinese, Japanese and Korean characters count twice."""
    counts = script_counts(text)
    apart = sum(count / _CHARACTERS_PER_WORD[name] for name, count in counts.items() if name in _CHARACTERS_PER_WORD)
    wide = sum(counts[name] for name in _WIDE)
    return max(float(len(text.split())), apart), len(text) + wide


def is_unspaced(text: str) -> bool:
    """Whether a text has letters of a script that puts no spaces between words."""
    return any(script(character) in UNSPACED for character in text)
