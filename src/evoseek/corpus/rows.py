"""Rows of a file, strictly: those that cannot be used are an error that names their lines.

A file is JSON lines; or, as its beginning tells, one JSON array, objects of several lines each, or a table (CSV) of
questions.
"""

from __future__ import annotations

import csv
import io
import json
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

from evoseek.corpus.decoding import bounded_lines, check_regular
from evoseek.errors import DataError
from evoseek.files import nearest

MAX_LINE_BYTES = 16 * 2**20
MAX_LISTED = 10  # lines that an error lists one by one
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_ARRAY, _NO_OBJECT = re.compile(r"\[\s*\{"), re.compile(r"[\s,]*")
_NEXT = re.compile(r"\s*(?:,\s*(?=[^\s\]])|\]\Z)")  # in an array, after an object
_LISTS = ("golden_answers", "answer", "evidence", "supporting_facts")
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
            elif (text := _decoded(line, noun, f"{path}:{number}")).strip():
                made.append(make(_object(text), number))
        except _EncodingError:
            raise  # it is a problem of the whole file
        except (DataError, ValueError) as error:
            problems.append(f"{path}:{number}: {error}")
        except RecursionError:
            problems.append(f"{path}:{number}: The JSON is nested too deeply. A {noun} is one flat object.")
    if problems:
        raise DataError(_summary(problems, path))
    if not made:
        raise DataError(f"The {noun} file {path} holds no {noun}. It must hold one JSON object a line.")
    return made


class _EncodingError(DataError):
    """The file is not UTF-8 text."""


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
    is_pretty = "\n" in beginning and _is_unfinished(first)
    if not is_pretty and not _ARRAY.match(beginning) and "question" not in _cells(first):
        return ""
    try:
        return file.read().decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        file.seek(0)
        return ""


def _is_unfinished(line: str) -> bool:
    """Whether a line begins an object that lines below it may end."""
    try:
        json.loads(line)
    except json.JSONDecodeError as error:
        return line.startswith("{") and error.pos >= len(line) - 1
    except RecursionError:
        pass
    return False


def _objects(path: Path, text: str, keys: str) -> Iterator[tuple[int, Mapping[str, object]]]:
    """The objects of an array, or those that follow one another."""
    decoder, number, is_array = json.JSONDecoder(object_pairs_hook=_without_repeats), 0, text[0] == "["
    place, after = (text.index("{"), _NEXT if is_array else _NO_OBJECT)
    while place < len(text):
        number += 1
        try:
            found, end = decoder.raw_decode(text, place)
            if (following := after.match(text, end)) is None:
                raise json.JSONDecodeError("Expecting ',' and another object, or ']' at the end", text, end)
            row = _checked(found, text[place:end])
        except DataError as error:
            raise DataError(f"{path}:{number}: {error}") from error
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{path} begins as a JSON array, or with an object of several lines, but: {error}. Correct it, or "
                f"convert it to JSON lines, each an object with the keys {keys}, as `jq -c '.[]' FILE` does."
            ) from error
        yield number, row
        place = following.end()


def _table(path: Path, text: str) -> Iterator[tuple[int, Mapping[str, object]]]:
    """The rows of a table, with its column headings in lower case as keys; empty cells are left out."""
    table = csv.reader(io.StringIO(text), delimiter=_delimiter(text.partition("\n")[0]))
    try:
        names = [name.strip().lower() for name in next(table)]
        _without_repeats([(name, None) for name in names if name])
        for row in table:
            if len(row) > len(names):
                raise DataError(
                    "The row has more cells than there are column headings. Put texts with separators in quotes."
                )
            if any(row):
                yield table.line_num, {key: _value(key, cell) for key, cell in zip(names, row, strict=False) if cell}
    except DataError as error:
        raise DataError(f"{path}:{table.line_num}: {error}") from error
    except csv.Error as error:
        raise DataError(f"{path}:{table.line_num}: {error}. Save the table as CSV, with texts in quotes.") from error


def _delimiter(header: str) -> str:
    return max(",;\t", key=header.count)


def _cells(header: str) -> list[str]:
    return [cell.strip(' "').lower() for cell in header.split(_delimiter(header))]


def _value(key: str, cell: str) -> object:
    """What a cell says: JSON where a key needs it, a list with texts among the answers, else text."""
    try:
        value: object = json.loads(cell.lower() if key == "answerable" else cell)
    except (ValueError, RecursionError):
        return cell
    if key in ("hops", "answerable"):
        return value
    items = cast("list[object]", value) if isinstance(value, list) else [None]
    is_list = key in _LISTS and (not items or any(not isinstance(item, int | float | None) for item in items))
    return value if is_list or (key == "metadata" and isinstance(value, dict)) else cell


def _decoded(line: bytes | None, noun: str, place: str) -> str:
    if line is None:
        raise DataError(f"The line is longer than {MAX_LINE_BYTES:,} bytes. Every {noun} needs a line of its own.")
    try:
        if b"\0" not in line:
            return line.decode("utf-8-sig")
        problem, name = "holds NUL bytes: the file is UTF-16, binary or damaged", "UTF-16"
    except UnicodeDecodeError:
        problem, name = "is not UTF-8 text", "UTF-16" if line.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "LATIN1"
    raise _EncodingError(
        f"{place}: The line {problem}. Save the file as UTF-8; if it is {name}, by `iconv -f {name} -t UTF-8 FILE`."
    )


def _object(text: str) -> Mapping[str, object]:
    return _checked(json.loads(text, object_pairs_hook=_without_repeats), text)


def _checked(row: object, text: str) -> Mapping[str, object]:
    """The row of a text. Raises DataError for what is no object, or what no file could hold."""
    if not isinstance(row, Mapping):
        raise DataError(f"Expected a JSON object, got {type(row).__name__}.")
    if _SURROGATE.search(text):  # only an escape can spell one: the line is UTF-8
        try:
            json.dumps(row, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"The line holds half a surrogate pair ({error.object[error.start]!r}), which is no character. Write "
                "the character that was meant in its place."
            ) from error
    return cast("Mapping[str, object]", row)


def _without_repeats(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise DataError(f"The key {repeated!r} comes twice, so one of its values would be lost. Leave one of them out.")
    return row
