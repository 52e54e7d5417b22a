"""Texts in any script: the script of a character, the folded forms for comparing texts, and lengths.

There is one folding, in two steps. `fold_characters` maps all forms of a character to one: search takes its terms from
the result. `keep_signs` then removes everything outside words except the signs of numbers and names (-40, 3.5, 1/2,
C++). `fold` and `text.normalization.comparable` compare the result.

Everything follows from the Unicode character database of Python's standard library: no model, no word list, no network.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from itertools import compress
from typing import Literal

_KANA = "KANA"
_SCRIPTS = {"CJK": "HAN", "HIRAGANA": _KANA, "KATAKANA": _KANA, "KATAKANA-HIRAGANA": _KANA, "IDEOGRAPHIC": "HAN"}
UNSPACED = frozenset({"HAN", _KANA, "THAI", "LAO", "KHMER", "MYANMAR", "TAI", "JAVANESE", "BALINESE"})
_CHARACTERS_PER_WORD = {"HAN": 2, _KANA: 2, "HANGUL": 2, "THAI": 4, "LAO": 4, "KHMER": 4, "MYANMAR": 4}
_WIDE = frozenset({"HAN", _KANA, "HANGUL"})  # one of their characters says as much as two letters

# Accents, and the points of Arabic (with the hamza on a letter) and Hebrew; not the vowels that Indic and Thai script
# write as marks.
_ACCENTS = re.compile(
    "[\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc"
    "\u06df-\u06e8\u06ea-\u06ed]+"
)
# Soft hyphens, joiners, marks of direction, selectors of variants.
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef]+"
)
# Between the parts of a word, in Arabic script: where one writer puts it, another puts a space.
_HALF_SPACE = re.compile("(?<=[\u0600-\u06ff])\u200c(?=[\u0600-\u06ff])")
# Letters that Unicode does not take apart into a base and an accent, and Arabic ones that writers exchange.
_LETTERS = str.maketrans(
    {"æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ð": "d", "ħ": "h", "ı": "i", "ł": "l", "ŧ": "t", "þ": "th"}
    | {"ٱ": "ا", "ى": "ي", "ی": "ي", "ة": "ه", "ہ": "ه", "ک": "ك"}
)
_DASHES = "".join(c for c in map(chr, range(0x80, 0x11000)) if unicodedata.category(c) == "Pd")
_PUNCTUATION = str.maketrans(
    dict.fromkeys(f"{_DASHES}\u2043\u2212", "-")
    | dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u00b4\u02b9\u02bb\u02bc\u02bd\u05f3", "'")
    | dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb\u05f4", '"')
    | {"。": ".", "、": ",", "،": ",", "؛": ";", "؟": "?", "٫": ".", "٬": "'", "٪": "%", "⁄": "/", "∕": "/", "♯": "#"}
)
_FOLDED = _PUNCTUATION | _LETTERS
# Compatibility forms that are no part of the number or word before them: 2½ is not 21/2, 10⁶ not 106, Java™ not javatm.
_SPECIAL = re.compile("[№™℠´\uff9e\uff9f⁰¹²³⁴-⁹⁻¼-¾⅐-⅟↉①-⓿❶-➓\u00a0\u2007-\u2009\u202f]")
_APART = str.maketrans({"№": "no ", "™": " ", "℠": " ", "´": "'", "\uff9e": "\u3099", "\uff9f": "\u309a"})
_CITATION = re.compile(r"(?:(?<!\s)\s+|(?<![\w\s]))\[([1-9]\d?(?:\s*,\s*[1-9]\d?)*)\]")
_ESCAPE = re.compile(r"\\(?=[_*#+])")  # of Markdown, within names
_POWER = re.compile("(?<=\\d)(?=[⁰¹²³⁴-⁹⁻])")
_FRACTION = re.compile("(?<=\\d)(?=[¼-¾⅐-⅟↉])")
_COUNTER = re.compile("(?<=[\\d①-⓿❶-➓])(?=[①-⓿❶-➓])")
_FIXED_SPACE = re.compile("(?<=\\d)[\u00a0\u2007-\u2009\u202f](?=\\d{3}(?!\\d))")  # within a number
_OTHER_DIGIT = re.compile(r"[^\D0-9]")
# Normalising a run of marks on one character takes quadratic time. So a run (of non-word characters, as marks are) that
# is longer than in any script is cut.
_RUN = re.compile(r"([^\w\s\x00-\x7f][^\w\s\x00-\x7f]{63})[^\w\s\x00-\x7f]+")

# Numbers with separators. A thousands separator is sure if it is a comma or an apostrophe, comes twice, or is a space
# before a zero; `12 345` may be two numbers, and `1.250` a decimal.
_THOUSANDS = re.compile(
    r"(?<![\d.,'])[1-9]\d{0,2}(?:(?:,\d{3})+(?!,?\d)|(?:'\d{3})+(?!'?\d)|(?:\.\d{3}){2,}(?!\.?\d)|(?:,\d\d)+,\d{3}(?!,?\d))"
)
_SPACED = re.compile(r"(?<![\d.,'])(?<!\d )[1-9]\d{0,2}(?: \d{3})+(?! ?\d)")
_ONE_POINT = re.compile(r"(?<![\d.,'])[1-9]\d{0,2}\.\d{3}(?!\.?\d)")
_SEPARATED = re.compile(r"\d[ ,.']\d\d")
_SEPARATORS = str.maketrans(dict.fromkeys(" ,.'", "\0"))
_DECIMAL_COMMA = re.compile(r"(?<![\d\0.,])([\d\0]+),(?!\d{3}(?!\d))(\d+)(?![.,]?\d)")
_WRITTEN = (  # other ways to write a sign, each with one of the same length, \0 for nothing
    (re.compile(r"(?<!\w)minus (?=\d)"), "\0\0\0\0\0-"),
    (re.compile(r"(?<![a-z\d\u00c0-\u0dff)\]-])-[$£€¥](?=\.?\d)"), "-\0"),
    (re.compile(r"(?<=\d) - (?=\d)"), "\0-\0"),
    (re.compile(r"(?<=\d) (?=\d{1,2}/\d{1,2}(?![\d/]))"), "+"),
    (re.compile(r"(?<=[a-z])\^(?=\d)"), "\0"),
)
_NUMBER = (
    r"(?:(?:(?<![a-z\d\u00c0-\u0dff)\]-])|(?<=\d-))-)?"  # a minus, but no hyphen
    r"(?:(?<![\w.])\.\d+(?!\.?\d)|(?<![/\d])(?:\d+\+)?\d{1,3}/\d{1,3}(?![\d/])|\d+\^-?\d+|\d+(?:\.\d+)?e-\d+|\d+(?::\d+)+"
    r"|(?<!\.)\d{1,3}(?:\.\d{1,3}){2,}(?!\.?\d)|(?<!\.)\d+\.\d+(?!\.?\d)|\d+)"
)
_SIGNED_NAME = r"(?<=[a-z])(?:\+\+(?![^\W\d_]|\+)|\+(?![\w+]))|(?<![\w*])[a-z]\*(?![\w*])|(?<!\w)[a-z]#(?![\w#])"
_BETWEEN = r"(?<=\d)(?:_|[^\w\s()\[\]!?])(?=\*?\d)|(?<=\d\*)\*(?=\d)"  # as in 3:1, 101_2, 2**10
_SIGNS = re.compile(rf"{_NUMBER}|{_SIGNED_NAME}|(?P<between>{_BETWEEN})|(?P<other>[^\w\s]|_)")
# What one folded character, or two, are made of
_PIECE = re.compile(
    "(?:\\\\[_*#+]|[\u1100-\u115f][\u1160-\u11a7]?[\u11a8-\u11ff]?|\\d[⁰¹²³⁴-⁹⁻¼-¾⅐-⅟↉]+|[\\s\\S])[\u0300-\u036f\u3099\u309a\uff9e\uff9f]*"
)


def well_formed(text: str) -> str:
    """Replace halves of surrogate pairs, which UTF-8 and tokenizers refuse, by U+FFFD."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@lru_cache(maxsize=1 << 16)
def script(character: str) -> str:
    """Return the script of a letter, such as LATIN, CYRILLIC, HAN, KANA or THAI; "" for other characters."""
    if unicodedata.category(character)[0] not in "LM":
        return ""
    first = unicodedata.name(character, "").partition(" ")[0]
    return "" if first in ("COMBINING", "MODIFIER", "FEMININE", "MASCULINE") else _SCRIPTS.get(first, first)


def script_counts(text: str) -> Counter[str]:
    """Count the letters of each script in a text. Japanese counts as two scripts, KANA and HAN."""
    counts = Counter(map(script, text))
    counts.pop("", None)
    return counts


def family(counts: Counter[str]) -> str:
    """Return the script of a text from its `script_counts`; "" without letters. Beside kana or hangul, Chinese
    characters count as kana or hangul."""
    for owner in (_KANA, "HANGUL"):
        if counts[owner] and counts[owner] + counts["HAN"] >= 0.5 * counts.total():
            return owner
    return max(counts, key=lambda name: (counts[name], name), default="")


def fold_characters(text: str, *, accents: bool = False) -> str:
    """Map all forms of a character to one: lower case, no accents (unless kept) or points, plain digits, dashes and
    quotation marks, of any width, script and encoding."""
    if "\\" in text:
        text = _ESCAPE.sub("", text)
    if text.isascii():
        return text.lower()
    text = _HALF_SPACE.sub(" ", text)
    if _SPECIAL.search(text):
        text = _FRACTION.sub("+", _POWER.sub("^", _COUNTER.sub(" ", _FIXED_SPACE.sub("'", text)))).translate(_APART)
    text = normalised("NFKC", _UNSEEN.sub("", text)).casefold()
    if not accents:
        text = _ACCENTS.sub("", normalised("NFD", text))
    text = normalised("NFKC", text).translate(_PUNCTUATION if accents else _FOLDED)
    return _OTHER_DIGIT.sub(_plain_digit, text)


def normalised(form: Literal["NFD", "NFKC"], text: str) -> str:
    """Return `text` in a normal form of Unicode, with long runs of marks cut."""
    return unicodedata.normalize(form, _RUN.sub(r"\1", text))


def _plain_digit(digit: re.Match[str]) -> str:
    return str(unicodedata.decimal(digit[0]))


def whole_numbers(folded: str) -> list[str]:
    """Return numbers with separators, in each way to read them without separators: `1250` for `1.250`."""
    if not _SEPARATED.search(folded):
        return []
    found = (match[0] for pattern in (_THOUSANDS, _SPACED, _ONE_POINT) for match in pattern.finditer(folded))
    return [number.translate(_SEPARATORS).replace("\0", "") for number in found]


def keep_signs(folded: str, replace: Callable[[str, bool], str], grouped: str = "") -> str:
    """Write each number in one form, and replace every character that is neither a letter or digit nor a sign of a
    number or name. `replace` receives whether the character stands between digits.

    `grouped` are the separators (space, point) that are read as thousands separators even if ambiguous."""
    return _SIGNS.sub(lambda match: _other(match, replace), _numbers(folded, grouped).replace("\0", ""))


def _other(match: re.Match[str], replace: Callable[[str, bool], str]) -> str:
    return replace(match[0], match.lastgroup == "between") if match.lastgroup else match[0]


def _numbers(folded: str, grouped: str) -> str:
    """Write numbers in one form of the same length, with \0 for what is left out."""

    def joined(match: re.Match[str]) -> str:
        return match[0].translate(_SEPARATORS) if " " in grouped or " 0" in match[0] else match[0]

    text = _SPACED.sub(joined, _THOUSANDS.sub(lambda match: match[0].translate(_SEPARATORS), folded))
    if "." in grouped:
        text = _ONE_POINT.sub(lambda match: match[0].translate(_SEPARATORS), text)
    text = _DECIMAL_COMMA.sub(r"\1.\2", text)
    for written, sign in _WRITTEN:
        text = written.sub(sign, text)
    return text


def fold(text: str, *, accents: bool = False, grouped: str = "") -> str:
    """Return the form for comparing the words of a text: folded, separated by single spaces, with the signs of numbers
    and names (`keep_signs`): `2,400` is `2400`, `-40` is not `40`."""
    return " ".join(keep_signs(fold_characters(text, accents=accents), _of_word, grouped).split())


@lru_cache(maxsize=1 << 16)
def _of_word(character: str, is_between: bool = False) -> str:
    return character if unicodedata.category(character)[0] in "LMN" else " "


def fold_places(text: str, grouped: str = "") -> tuple[str, list[tuple[int, int]]]:
    """Return the folded characters of a text, with a space for each one outside words, and the place in the text where
    each comes from."""
    characters: list[str] = []
    places: list[tuple[int, int]] = []
    for piece in _PIECE.finditer(_HALF_SPACE.sub(" ", text)):
        folded = " " if piece[0].isspace() else fold_characters(piece[0])
        characters += folded
        places += [piece.span()] * len(folded)
    numbered = _numbers("".join(characters), grouped)
    kept = [character != "\0" for character in numbered]
    plain = _SIGNS.sub(lambda match: _other(match, _of_word), "".join(compress(numbered, kept)))
    return plain, list(compress(places, kept))


def find_citations(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return the text without citations, such as `[2]` or `[1, 3]`, and each number with its place in that text.
    Brackets directly after a word are not a citation: `argv[1]`."""
    found, removed = list[tuple[int, int]](), 0
    for match in _CITATION.finditer(text):
        found += [(int(number), match.start() - removed) for number in match[1].split(",")]
        removed += len(match[0])
    return _CITATION.sub("", text), found


def without_citations(text: str) -> str:
    """Return the text without its citations, or the whole text if it is nothing else."""
    return find_citations(text)[0].strip() or text


def length(text: str) -> tuple[float, int]:
    """Count words and characters, comparably between scripts. If spaces separate fewer words, two Chinese, Japanese or
    Korean characters count as a word, or four Thai ones. Chinese, Japanese and Korean characters count twice."""
    counts = script_counts(text)
    apart = sum(count / _CHARACTERS_PER_WORD[name] for name, count in counts.items() if name in _CHARACTERS_PER_WORD)
    wide = sum(counts[name] for name in _WIDE)
    return max(float(len(text.split())), apart), len(text) + wide


def is_unspaced(text: str) -> bool:
    """Return whether a text has letters of a script without spaces between words."""
    return any(script(character) in UNSPACED for character in text)
