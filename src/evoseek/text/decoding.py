"""Reads the bytes of a file, up to a limit, and decodes them to text."""

from __future__ import annotations

import codecs
import os
import re
import stat
import unicodedata
from collections.abc import Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import charset_normalizer

from evoseek.errors import ConfigError, DataError
from evoseek.text.scripts import family, script_counts, well_formed

# UTF-32 stands before UTF-16, whose little-endian mark is a prefix of its own.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
LINK_OUT = "link that leads out of the corpus: to read what is there, index with --follow-links"
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_SAMPLE = 256 * 1024  # bytes from which an encoding is guessed: guessing is slow
_LATER_BYTES = bytes(range(0x30, 0x100))  # the second and later ones of a character
_WEST = ("cp1252", "iso8859-15", "mac_roman", "cp850", "cp437")
_MIDDLE = ("cp1250", "iso8859-2", "mac_latin2", "cp852")
_EAST = ("cp1251", "koi8-r", "koi8-u", "cp866", "mac_cyrillic", "iso8859-5")
_TURKISH = ("cp1254", "mac_turkish", "cp857")
_GREEK = ("cp1253", "iso8859-7", "mac_greek", "cp737")
_BALTIC = ("cp1257", "iso8859-13", "cp775")
_SURE, _SURE_ALONE = 0.9, 0.95  # least share of the characters beyond ASCII to explain: Latin script, others
_FEWEST_VOWELS = 0.28  # of the letters of Russian and similar texts; Hebrew mistaken for Russian has fewer
_QUOTES = frozenset("“”„‚‘’‹›«»–—…•·®™©\u00a0\u00ad")  # which may touch a word
_WITHIN = frozenset("’‘·\u00ad")
_SIGNS = frozenset("€£§°±½¼¾¿¡´×÷‰†№²³¹µ")
_ALONE = frozenset("¥¢Ø")  # signs that would be letters within a word
_ORDINAL = re.compile(r"(?:(?<=[\d.])|(?<=\b[nNDM]))[ºª](?![^\W\d_])")  # as in 3º, nº, D.ª
_POWER = re.compile(r"(?<=\b[cdkm]m)[²³¹]|(?<=\bm)[²³¹]")  # of a unit
_WORD = re.compile(r"[^\W\d_]+")
_VOWELS = frozenset("аеёиоуыэюяіїєαεηιουωάέήίόύώ")


def read_bytes(path: Path, limit: int, within: Path | None = None) -> bytes:
    """Read a whole file. Raises DataError if it is not a regular, readable file of at most `limit` bytes."""
    try:
        with open_regular(path, within) as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}") from error
    if len(data) > limit:
        raise too_large("file", limit)
    return data


def too_large(what: str, limit: int) -> DataError:
    """Return the error for a file, line or message of more than `limit` bytes."""
    return DataError(f"{what} is too large: more than {limit:,} bytes: divide it, or raise --max-text for a text")


def bounded_lines(file: BinaryIO, limit: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield lines with their numbers; None for one over the limit. No more than the limit is held at a time."""
    number = 0
    while line := file.readline(limit + 1):
        number += 1
        if len(line) <= limit or line.endswith(b"\n"):
            yield number, line
            continue
        while (rest := file.readline(limit + 1)) and not rest.endswith(b"\n"):
            pass
        yield number, None


def open_regular(path: Path, within: Path | None = None) -> BufferedReader:
    """Open the file for reading. Raises OSError, and DataError for a pipe or device, which would block or never end.

    `within` is a folder without links in its path. If a link leads out of it, DataError is raised. The file is opened
    by its real path without following links, so no link can be put in its way meanwhile.
    """
    check_regular(path)
    found = os.open(path, _READ) if within is None else _opened_within(path, within)
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise DataError("not a regular file")
    return cast("BufferedReader", open(found, "rb", buffering=2**20))


def _opened_within(path: Path, within: Path) -> int:
    real = Path(os.path.realpath(path, strict=True))
    if not real.is_relative_to(within):
        raise DataError(LINK_OUT)
    found = os.open(within, _READ)
    for part in real.relative_to(within).parts:
        folder = found
        try:
            found = os.open(part, _READ | os.O_NOFOLLOW, dir_fd=folder)
        finally:
            os.close(folder)
    return found


def check_regular(path: Path) -> None:
    """Raise DataError for files whose reading would block or never end: pipes, devices, broken links."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        raise DataError("not a regular file")


def decode(data: bytes, encoding: str | None = None) -> tuple[str, str]:
    """Decode by the byte order mark, as UTF-8, in the given `encoding`, or else in the most likely one. Return the
    text, and the name of the likely encoding (`guess_encoding`), "" if it was not used.

    Line ends become newlines. Raises DataError for binary data and for text in no known encoding.
    """
    marked, guessed = next((name for mark, name in _MARKS if data.startswith(mark)), ""), ""
    if not marked and b"\0" in data and not (guessed := unmarked_utf_16(data)):
        raise DataError("binary: holds NUL bytes")
    text = _text(data, marked or guessed or "utf-8")
    if text is None and marked:
        raise DataError(f"encoding not recognised: begins as {marked} but is not")
    if text is None and encoding:
        text = _text(data, encoding)
        if text is None:
            raise DataError(f"encoding not recognised: neither UTF-8 nor {encoding}")
    if text is None:
        guessed = next(filter(None, map(guess_encoding, _samples(data))), "")
        text = _text(data, guessed) if guessed else None
        if text is None:
            raise DataError(f"encoding not recognised{f': begins as {guessed} but is not' if guessed else ''}")
    if "\0" in text:
        raise DataError("binary: holds NUL characters")
    return well_formed(text).replace("\r\n", "\n").replace("\r", "\n"), guessed


def _samples(data: bytes) -> Sequence[bytes]:
    """Return the beginning, cut behind a byte that ends a character; if there is none, four cuts to try."""
    if len(data) <= _SAMPLE:
        return [data]
    whole = data[:_SAMPLE].rstrip(_LATER_BYTES)
    return [whole] if len(whole) > _SAMPLE // 2 else [data[: _SAMPLE - cut] for cut in range(4)]


def _text(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        return None


def check_encoding(name: str) -> None:
    """Raise ConfigError if a name is not a text encoding."""
    try:
        codecs.lookup(name)
        "".encode(name)
    except LookupError as error:
        raise ConfigError(
            f"{name!r} is no known encoding of text. Give a name such as shift_jis, cp1252 or gb18030."
        ) from error


class _LetterLanguage(NamedTuple):
    """The letters of a language beyond ASCII, in lower case, the places where they cannot occur, and the encodings of
    its texts, the usual one first."""

    letters: str
    encodings: tuple[str, ...]
    odd: str = r"(?!)"

    @property
    def is_latin(self) -> bool:
        return family(script_counts(self.letters)) == "LATIN"


_LANGUAGES = (
    _LetterLanguage("äöüß", _WEST),  # German; Finnish, Estonian and Swedish have these, too
    _LetterLanguage("éèêëàâçîïôùûœ", _WEST),  # French
    _LetterLanguage("áéíóúüñ", _WEST, "(?i)ñ(?![aeiouáéíóú])"),  # Spanish
    _LetterLanguage("áâãàçéêíóôõúü", _WEST, "(?i)õ(?!e)|ã(?![eo]|s?\\b)"),  # Portuguese
    _LetterLanguage("àèéìòùî", _WEST),  # Italian
    _LetterLanguage("ąćęłńóśźż", _MIDDLE),  # Polish
    _LetterLanguage("áčďéěíňóřšťúůýž", _MIDDLE, r"(?i)\bý|(?<![aeiouyáéíóúůýě])ř(?![aeiouyáéíóúůýě])"),  # Czech
    _LetterLanguage("áäčďéíĺľňóôŕšťúýž", _MIDDLE, r"(?i)\bý"),  # Slovak
    _LetterLanguage("áéíóöőúüű", _MIDDLE),  # Hungarian
    _LetterLanguage("çğıİöşüâî", _TURKISH),  # Turkish
    _LetterLanguage("čćđšž", _MIDDLE),  # Croatian, Slovenian
    _LetterLanguage("ăâîşţ", _MIDDLE),  # Romanian
    _LetterLanguage("åäöé", _WEST),  # Swedish, Finnish
    _LetterLanguage("æøåéö", _WEST, "(?i)[aeou]ø|ø[aou]|øe(?![rn])"),  # Danish, Norwegian
    _LetterLanguage("éëïöüèáóí", _WEST),  # Dutch
    _LetterLanguage("àçèéíïòóúü", _WEST),  # Catalan
    _LetterLanguage("äõöüšž", (*_WEST, *_BALTIC)),  # Estonian
    _LetterLanguage("ąčęėįšųūž", _BALTIC),  # Lithuanian
    _LetterLanguage("āčēģīķļņšūž", _BALTIC),  # Latvian
    _LetterLanguage("áðéíóúýþæö", _WEST),  # Icelandic
    _LetterLanguage(
        "".join(sorted(set("äöüßéèêëàâçîïôùûáíóúñãõìòåæø"))), ("cp1252",)
    ),  # several of those, as names have them
    _LetterLanguage("אבגדהוזחטיךכלםמןנסעףפץצקרשת", ("cp1255", "iso8859-8"), "[ךםןףץ](?=[א-ת])"),
    _LetterLanguage("абвгдежзийклмнопрстуфхцчшщъыьэюяё", _EAST),  # Russian, Bulgarian
    _LetterLanguage("абвгдежзийклмнопрстуфхцчшщьюяіїєґ", _EAST),  # Ukrainian
    _LetterLanguage("абвгдежзиклмнопрстуфхцчшђјљњћџ", _EAST),  # Serbian
    _LetterLanguage("αβγδεζηθικλμνξοπρστυφχψωςάέήίόύώϊϋ", _GREEK),
    _LetterLanguage("ابتثجحخدذرزسشصضطظعغفقكلمنهويىءآأؤإئةپچژگ", ("cp1256", "iso8859-6")),
)


def guess_encoding(data: bytes) -> str:
    """Return the most likely encoding of bytes that are text but not UTF-8; "" if none is.

    If one language explains nearly all of the letters in their places, its encoding is taken. Any other text, including
    all of Chinese, Japanese, Korean and Thai, is left to charset-normalizer.
    """
    share, encoding = max(_explanations(data), default=(0.0, ""), key=lambda found: found[0])
    if share >= _SURE:
        return encoding
    guess = charset_normalizer.from_bytes(data).best()
    return guess.encoding if guess else ""


def unmarked_utf_16(data: bytes) -> str:
    """Return the kind of UTF-16 in which bytes with zeros are all characters of a text; "" if there is none."""
    for encoding in ("utf-16-le", "utf-16-be"):
        text = (_decoded(data, encoding) or ("",))[0]
        if any(map(str.isascii, text)) and all(map(_is_of_text, text)):
            return encoding
    return ""


def _is_of_text(character: str) -> bool:
    return character in "\t\n\r\f" or unicodedata.category(character) not in ("Cc", "Cn", "Co")


def _explanations(data: bytes) -> Iterator[tuple[float, str]]:
    """Yield, for each possible language and encoding, the share of characters beyond ASCII that it explains; usual
    encodings first."""
    texts: dict[str, tuple[str, bool] | None] = {}
    for rank in range(max(len(language.encodings) for language in _LANGUAGES)):
        for language in _LANGUAGES:
            for encoding in language.encodings[rank : rank + 1]:
                if encoding not in texts:
                    texts[encoding] = _decoded(data, encoding)
                if (found := texts[encoding]) is None or found[1] != language.is_latin:
                    continue
                share = _share(found[0], language)
                if found[1] or (share >= _SURE_ALONE and _has_vowels(found[0], language)):
                    yield share, encoding


def _decoded(data: bytes, encoding: str) -> tuple[str, bool] | None:
    """Return the text, and whether ASCII has most letters of the words that it does not have whole."""
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return None
    letters = "".join(word for word in _WORD.findall(text) if len(word) > 1 and not word.isascii())
    return text, 2 * sum(map(str.isascii, letters)) >= len(letters)


def _share(text: str, language: _LetterLanguage) -> float:
    known = frozenset(language.letters + language.letters.upper())
    odd = {match.start() for match in re.finditer(language.odd, text)}
    whole = {match.start() for pattern in (_ORDINAL, _POWER) for match in pattern.finditer(text)}
    good = count = 0
    for place, character in enumerate(text):
        if character.isascii():
            continue
        before, after = text[place - 1 : place], text[place + 1 : place + 2]
        count += 1
        if place in whole or (character in _ALONE and not (before.isalpha() or after.isalpha())):
            good += 1
        elif character in known:
            good += place not in odd and not (character.isupper() and before.islower())
        elif character in _QUOTES:
            good += character in _WITHIN or not (before.isalpha() and after.isalpha())
        elif character in _SIGNS:
            good += not before.isalpha()
    return good / max(count, 1)


def _has_vowels(text: str, language: _LetterLanguage) -> bool:
    if _VOWELS.isdisjoint(language.letters):
        return True
    letters = [character for character in text.lower() if character in language.letters]
    return sum(character in _VOWELS for character in letters) >= _FEWEST_VOWELS * len(letters)
