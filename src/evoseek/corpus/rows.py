"""Rows of a file, strictly: those that cannot be used are an error that names their lines.

A file is JSON lines; or, as its beginning tells, one JSON array, objects of several lines each, or a table (CSV) of
questions.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

from evoseek.corpus.decoding import check_regular
from evoseek.corpus.jsonl import bounded_lines
from evoseek.errors import DataError
from evoseek.files import nearest

MAX_LINE_BYTES = 16 * 2**20
MAX_LISTED = 10  # lines that an error lists one by one
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_ARRAY, _NO_OBJECT = re.compile(r"\[\s*\{"), re.compile(r"[\s,]*")
_BEGINNING = 64 * 1024  # bytes by which a format is known
T = TypeVar("T")


def read_rows(path: Path, make: Callable[[Mapping[str, object], int], T], *, noun: str, keys: str) -> list[T]:
    """What `make` returns for every object and its line number (of an array: its place), in order; blank lines are
    skipped.

    `make` may refuse one by raising DataError. `noun` and `keys` (of a line) are for the messages. Raises DataError if
    the file cannot be read or holds no row, or if lines cannot be used: with the reasons for the first ten of them, and
    the number of the others.
    """
    made: list[T] = []
    problems: list[str] = []
    for number, line in _lines(path, noun, keys):
        try:
            if isinstance(line, Mapping):
                made.append(make(line, number))
            elif (text := _decoded(line, noun)).strip():
                made.append(make(_object(text), number))
        except (DataError, ValueError) as error:
            problems.append(f"{path}:{number}: {error}")
        except RecursionError:
            problems.append(f"{path}:{number}: The JSON is nested too deeply. A {noun} is one flat object.")
    if problems:
        raise DataError(_summary(problems, path))
    if not made:
        raise DataError(f"The {noun} file {path} holds no {noun}. It must hold one JSON object a line.")
    return made


def _summary(problems: Sequence[str], path: Path) -> str:
    if len(problems) == 1:
        return problems[0]
    others = len(problems) - MAX_LISTED
    more = [f"... and {others:,} more"] if others > 0 else []
    return "\n".join([f"{len(problems):,} lines of {path} cannot be used:", *problems[:MAX_LISTED], *more])


def _lines(path: Path, noun: str, keys: str) -> Iterator[tuple[int, bytes | Mapping[str, object] | None]]:
    """The lines of a file of JSON lines, or the rows of one in another format."""
    try:
        check_regular(path)
        with path.open("rb") as file:
            if not (text := _of_other_format(file)):
                yield from bounded_lines(file, MAX_LINE_BYTES)
                return
    except (OSError, DataError) as error:
        raise DataError(
            f"The {noun} file {path} cannot be read ({error}).{nearest(path)} It must be a UTF-8 file of JSON lines "
            f"with the keys {keys}."
        ) from error
    yield from _objects(path, text, keys) if text[0] in "[{" else _table(path, text)


def _of_other_format(file: BinaryIO) -> str:
    """The text of a file that does not begin as JSON lines do; "" for one that does, which is at its beginning then."""
    beginning = file.read(_BEGINNING).decode("utf-8-sig", "replace").lstrip()
    first = beginning.partition("\n")[0].strip()
    file.seek(0)
    if not beginning.startswith(("{\n", "{\r\n")) and not _ARRAY.match(beginning) and "question" not in _cells(first):
        return ""
    try:
        return file.read().decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        file.seek(0)
        return ""


def _objects(path: Path, text: str, keys: str) -> Iterator[tuple[int, Mapping[str, object]]]:
    """The objects of an array, or those that follow one another."""
    decoder, place, number = json.JSONDecoder(object_pairs_hook=_without_repeats), 0, 0
    escape = _SURROGATE.search(text)
    while place < len(text):
        try:
            found, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{path} begins as a JSON array, or with an object of several lines, but: {error}. Correct it, or "
                f"convert it to JSON lines, each an object with the keys {keys}, as `jq -c '.[]' FILE` does."
            ) from error
        for item in cast("list[object]", found) if isinstance(found, list) else [found]:
            number += 1
            if not isinstance(item, Mapping):
                raise DataError(f"{path}: number {number} of the array is no JSON object, but {type(item).__name__}.")
            yield number, _checked(cast("Mapping[str, object]", item), escape[0] if escape else "")
        rest = _NO_OBJECT.match(text, end)
        place = rest.end() if rest else end


def _table(path: Path, text: str) -> Iterator[tuple[int, Mapping[str, object]]]:
    """The rows of a table, with its column headings as keys; empty cells are left out."""
    table = csv.DictReader(io.StringIO(text), delimiter=_delimiter(text.partition("\n")[0]))
    try:
        for row in table:
            if None in row:
                raise DataError(
                    f"{path}:{table.line_num}: The row has more cells than there are column headings. Put texts with "
                    "separators in quotes."
                )
            yield table.line_num, {key.strip(): _value(key.strip(), cell) for key, cell in row.items() if cell}
    except csv.Error as error:
        raise DataError(f"{path}:{table.line_num}: {error}. Save the table as CSV, with texts in quotes.") from error


def _delimiter(header: str) -> str:
    return max(",;\t", key=header.count)


def _cells(header: str) -> list[str]:
    return [cell.strip(' "') for cell in header.split(_delimiter(header))]


def _value(key: str, cell: str) -> object:
    """A list, true or false as JSON has them, or the number of hops; anything else is text."""
    try:
        value: object = json.loads(cell.lower() if cell.lower() in ("true", "false") else cell)
    except (ValueError, RecursionError):
        return cell
    return value if isinstance(value, list | bool) or key == "hops" else cell


def _decoded(line: bytes | None, noun: str) -> str:
    if line is None:
        raise DataError(f"The line is longer than {MAX_LINE_BYTES:,} bytes. Every {noun} needs a line of its own.")
    if b"\0" in line:
        raise DataError("The line holds NUL bytes: the file is binary or damaged. JSON lines are UTF-8 text.")
    try:
        return line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError("The line is not UTF-8 text. Save the file as UTF-8.") from error


def _object(text: str) -> Mapping[str, object]:
    row = json.loads(text, object_pairs_hook=_without_repeats)
    if not isinstance(row, Mapping):
        raise DataError(f"Expected a JSON object, got {type(row).__name__}.")
    return _checked(cast("Mapping[str, object]", row), text)


def _checked(row: Mapping[str, object], text: str) -> Mapping[str, object]:
    """The row of a text. Raises DataError for what no file could hold."""
    if _SURROGATE.search(text):  # only an escape can spell one: the line is UTF-8
        try:
            json.dumps(row, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"The line holds half a surrogate pair ({error.object[error.start]!r}), which is no character. Write "
                "the character that was meant in its place."
            ) from error
    return row


def _without_repeats(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise DataError(f"The key {repeated!r} comes twice, so one of its values would be lost. Leave one of them out.")
    return row
