"""JSON lines of which every one counts: a line that cannot be used is an error that names it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar, cast

from evoseek.corpus.decoding import check_regular
from evoseek.corpus.jsonl import bounded_lines
from evoseek.errors import DataError

MAX_LINE_BYTES = 16 * 2**20
T = TypeVar("T")


def read_rows(path: Path, make: Callable[[Mapping[str, object], int], T], *, noun: str, keys: str) -> list[T]:
    """What `make` makes of every object and its line number, in order; blank lines are passed over.

    `make` may refuse one by raising DataError. `noun` and `keys` (of a line) are for the messages. Raises DataError,
    naming file and line, if the file cannot be read, holds no row, or any line cannot be used.
    """
    made: list[T] = []
    for number, line in _lines(path, noun, keys):
        try:
            if (text := _decoded(line, noun)).strip():
                made.append(make(_object(text), number))
        except (DataError, ValueError) as error:
            raise DataError(f"{path}:{number}: {error}") from error
        except RecursionError as error:
            raise DataError(f"{path}:{number}: The JSON is nested too deeply. A {noun} is one flat object.") from error
    if not made:
        raise DataError(f"The {noun} file {path} holds no {noun}. It must hold one JSON object a line.")
    return made


def _lines(path: Path, noun: str, keys: str) -> Iterator[tuple[int, bytes | None]]:
    try:
        check_regular(path)
        with path.open("rb") as file:
            yield from bounded_lines(file, MAX_LINE_BYTES)
    except (OSError, DataError) as error:
        raise DataError(
            f"The {noun} file {path} cannot be read ({error}). It must be a UTF-8 file of JSON lines with the keys "
            f"{keys}."
        ) from error


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
    row = json.loads(text)
    if not isinstance(row, Mapping):
        raise DataError(f"Expected a JSON object, got {type(row).__name__}.")
    return cast(Mapping[str, object], row)
