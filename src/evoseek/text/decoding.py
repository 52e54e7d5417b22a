"""The bytes of a file, up to a limit, and these to text."""

from __future__ import annotations

import codecs
import gzip
import os
import stat
import zlib
from collections.abc import Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, cast

from evoseek.errors import ConfigError, DataError
from evoseek.text.encodings import guess_encoding, unmarked_utf_16
from evoseek.text.scripts import well_formed

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
_LATER_BYTES = bytes(range(0x30, 0x100))  # of which a character of several bytes has its second and later ones


def read_bytes(path: Path, limit: int, within: Path | None = None) -> bytes:
    """The whole file. DataError if it is not a regular file, cannot be read or has more than `limit` bytes."""
    try:
        with opened(path, within) as file:
            data = file.read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if len(data) > limit:
        raise too_large("file", limit)
    return data


def too_large(what: str, limit: int) -> DataError:
    """The error for a file, or a line or message in one, of more than `limit` bytes."""
    return DataError(f"{what} is too large: more than {limit:,} bytes: divide it, or raise --max-text for a text")


def bounded_lines(file: BinaryIO, limit: int) -> Iterator[tuple[int, bytes | None]]:
    """Lines with their numbers; None for one over the limit, of which no more than that is held at a time."""
    number = 0
    while line := file.readline(limit + 1):
        number += 1
        if len(line) <= limit or line.endswith(b"\n"):
            yield number, line
            continue
        while (rest := file.readline(limit + 1)) and not rest.endswith(b"\n"):
            pass
        yield number, None


def opened(path: Path, within: Path | None = None) -> BinaryIO:
    """The file as `open_regular` opens it; one that is compressed by gzip as what was compressed."""
    file = open_regular(path, within)
    if path.suffix.lower() != ".gz":
        return file
    unpacked = gzip.GzipFile(fileobj=file)
    unpacked.myfileobj = cast("Any", file)  # which is closed with it
    return cast("BinaryIO", unpacked)


def open_regular(path: Path, within: Path | None = None) -> BufferedReader:
    """The file, to be read. Raises OSError, and DataError for what would block or never end: pipes, devices.

    `within` is a folder, without links in its path, out of which no link may lead: DataError for a file elsewhere. The
    file is opened by its real path without following any link, so none can take a place on the way meanwhile.
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
    """Raises DataError for files whose reading would block or never end: pipes, devices, broken links."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        raise DataError("not a regular file")


def decode(data: bytes, encoding: str | None = None) -> tuple[str, str]:
    """Text by its byte order mark, as UTF-8, in the `encoding` that is named for others, or else in the most likely one
    (`guess_encoding`); and the name of the last one, "" if it was not used.

    Line ends become newlines. DataError for binary data and for bytes that are text in no known encoding.
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
    """The beginning, without half a character at its end; without white space there, by trial."""
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
    """ConfigError for a name that is no encoding of text."""
    try:
        codecs.lookup(name)
        "".encode(name)
    except LookupError as error:
        raise ConfigError(
            f"{name!r} is no known encoding of text. Give a name such as shift_jis, cp1252 or gb18030."
        ) from error
