"""Reads the rows of a file strictly: if rows cannot be used, an error names their lines.

A file is JSON lines or, as its beginning shows, one JSON array or a table (CSV) of questions. Each row becomes the text
of a JSON object with its number, which is then read in one way.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar, cast

from evoseek.errors import DataError
from evoseek.storage.files import nearest
from evoseek.text.decoding import read_bytes

if TYPE_CHECKING:
    from _csv import Reader

MAX_BYTES = 2**31
MAX_LISTED = 10  # lines that an error lists one by one
_GZIP = b"\x1f\x8b"  # how a compressed file begins
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_ARRAY = re.compile(r"\s*\[\s*\{")
_NEXT = re.compile(r"\s*(?:,\s*(?=[^\s\]])|\]\s*\Z)")  # in an array, after an object
_DECLARED = re.compile(r"sep=([^\n])\n", re.IGNORECASE)  # which spreadsheet programs write and read
_BEGINNING = 64 * 1024  # characters that identify a format
T = TypeVar("T")
csv.field_size_limit(2**31 - 1)  # files are bounded


def read_rows(path: Path, make: Callable[[Mapping[str, object], int], T], *, noun: str, keys: str) -> list[T]:
    """Return `make(object, line number)` for every row, in order (of an array, its place is the number). Blank lines
    are skipped.

    `make` may refuse a row by raising DataError. `noun` and `keys` (of a line) are for messages. Raises DataError if
    the file cannot be read, has no row, or has unusable lines. The error has the reasons for the first ten lines, and
    the number of the others.
    """
    made: list[T] = []
    problems: list[str] = []
    code = ""  # of the first problem
    for number, line in _records(path, _text(path, noun, keys), keys):
        try:
            if line.strip():
                made.append(make(_object(line), number))
        except (DataError, ValueError) as error:
            problems.append(f"{path}:{number}: {error}")
            code = code or (error.code if isinstance(error, DataError) else "rows.not_json")
        except RecursionError:
            problems.append(f"{path}:{number}: The JSON is nested too deeply. A {noun} is one flat object.")
    if problems:
        raise DataError(_summary(problems, path), code=code)
    if not made:
        raise DataError(
            f"The {noun} file {path} holds no {noun}. It must hold one JSON object a line.", code="rows.empty"
        )
    return made


def csv_rows(text: str) -> Reader:
    """Read the rows of a table whose cells are separated by tabs, semicolons, commas or bars. The separator is the one
    that divides most of the first rows into equally many cells, or the one in a first line `sep=;`. An unclosed quote
    is read as text if more rows are then equally wide."""
    declared = _DECLARED.match(text)
    text = text[declared.end() :] if declared else text
    delimiter = declared[1] if declared else max("\t;,|", key=partial(_regularity, text[:_BEGINNING]))
    plain = partial(_regularity, text, delimiter)
    is_unclosed = text.count('"') % 2 == 1 and plain(csv.QUOTE_NONE) > plain(csv.QUOTE_MINIMAL)
    quoting = csv.QUOTE_NONE if is_unclosed else csv.QUOTE_MINIMAL
    return csv.reader(io.StringIO(text), delimiter=delimiter, quoting=quoting, skipinitialspace=True)


def _regularity(text: str, delimiter: str, quoting: Literal[0, 3] = csv.QUOTE_MINIMAL) -> tuple[int, int]:
    """Return the largest number of rows with one width above 1, and this width."""
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, quoting=quoting, skipinitialspace=True)
    widths = Counter(map(len, reader))
    return max(((count, width) for width, count in widths.items() if width > 1), default=(0, 0))


def _summary(problems: Sequence[str], path: Path) -> str:
    if len(problems) == 1:
        return problems[0]
    others = len(problems) - MAX_LISTED
    more = [f"... and {others:,} more"] if others > 0 else []
    return "\n".join([f"{len(problems):,} lines of {path} cannot be used:", *problems[:MAX_LISTED], *more])


def _text(path: Path, noun: str, keys: str) -> str:
    try:
        data = read_bytes(path, MAX_BYTES)
    except DataError as error:
        raise DataError(
            f"The {noun} file {path} cannot be read ({error}).{nearest(path)} It must be a UTF-8 file of JSON lines "
            f"with the keys {keys}.",
            code="rows.missing",
        ) from error
    if data.startswith(_GZIP):
        raise DataError(f"The {noun} file {path} is compressed. Unpack it first, for example with `gunzip FILE`.")
    place, problem, name = data.find(b"\0"), "holds NUL bytes: the file is UTF-16, binary or damaged", "UTF-16"
    if place < 0:
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            is_marked = data.startswith((b"\xff\xfe", b"\xfe\xff"))
            place, problem, name = error.start, "is not UTF-8 text", "UTF-16" if is_marked else "LATIN1"
    number = data.count(b"\n", 0, place) + 1
    raise DataError(
        f"{path}:{number}: The line {problem}. Save the file as UTF-8; if it is {name}, with "
        f"`iconv -f {name} -t UTF-8 FILE`.",
        code="rows.not_utf8",
    )


def _records(path: Path, text: str, keys: str) -> Iterator[tuple[int, str]]:
    if _ARRAY.match(text):
        return _items(path, text, keys)
    first = [] if text.lstrip().startswith("{") else next(csv_rows(text[:_BEGINNING]), [])
    if "question" in [name.strip().lower() for name in first]:
        return _table(path, text)
    if path.suffix.lower() in (".csv", ".tsv") and first:
        raise DataError(
            f"The first row of {path} is {', '.join(map(repr, first[:MAX_LISTED]))}. Expected the headings of its "
            f"columns, among them the keys {keys}. Rename the columns, or add such a row.",
            code="rows.headings",
        )
    return iter(enumerate(text.split("\n"), start=1))


def _items(path: Path, text: str, keys: str) -> Iterator[tuple[int, str]]:
    decoder, number, place = json.JSONDecoder(), 0, text.index("{")
    while place < len(text):
        number += 1
        try:
            _, end = decoder.raw_decode(text, place)
            if (following := _NEXT.match(text, end)) is None:
                raise json.JSONDecodeError("Expecting ',' and another object, or ']' at the end", text, end)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{path} begins as a JSON array, but: {error}. Correct it, or convert it to JSON lines, each an object "
                f"with the keys {keys}, as `jq -c '.[]' FILE` does."
            ) from error
        yield number, text[place:end]
        place = following.end()


def _table(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """Yield the rows of a table as objects, with lower-case column headings as keys, without empty cells."""
    table = csv_rows(text)
    names = [name.strip().lower() for name in next(table)]
    try:
        _without_repeats([(name, None) for name in names if name])
        for row in table:
            if len(row) > len(names):
                raise DataError(
                    "The row has more cells than there are column headings. Put texts with separators in quotes."
                )
            if any(row):
                cells = {key: _value(key, cell) for key, cell in zip(names, row, strict=False) if cell}
                yield table.line_num, json.dumps(cells)
    except (DataError, csv.Error) as error:
        raise DataError(f"{path}:{table.line_num}: {error}") from error


def _value(key: str, cell: str) -> object:
    """Return the value of a cell: JSON if the key needs it, an object, or a list of non-numbers; else text."""
    try:
        value: object = json.loads(cell.lower() if key == "answerable" else cell)
    except (ValueError, RecursionError):
        return cell
    items = cast("list[object]", value) if isinstance(value, list) else [None]
    is_list = not any(isinstance(item, int | float | None) for item in items)
    return value if key in ("hops", "answerable") or is_list or isinstance(value, dict) else cell


def _object(text: str) -> Mapping[str, object]:
    """Parse a JSON object. Raises DataError for anything else, and for a text that no file could hold."""
    row: object = json.loads(text, object_pairs_hook=_without_repeats)
    if not isinstance(row, Mapping):
        raise DataError(f"Expected a JSON object, got {type(row).__name__}.")
    if _SURROGATE.search(text):  # only an escape can spell one: the line is UTF-8
        try:
            json.dumps(row, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"The line holds half a surrogate pair ({error.object[error.start]!r}), which is not a character. "
                "Replace it by the intended character."
            ) from error
    return cast("Mapping[str, object]", row)


def _without_repeats(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise DataError(f"The key {repeated!r} comes twice, so one of its values would be lost. Remove one of them.")
    return row
