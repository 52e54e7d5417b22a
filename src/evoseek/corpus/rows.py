"""Strict JSON lines: lines that cannot be used are an error that names them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar, cast

from evoseek.corpus.decoding import check_regular
from evoseek.corpus.jsonl import bounded_lines
from evoseek.errors import DataError
from evoseek.files import nearest

MAX_LINE_BYTES = 16 * 2**20
MAX_TOLD = 10  # lines that an error tells of one by one
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
T = TypeVar("T")


def read_rows(path: Path, make: Callable[[Mapping[str, object], int], T], *, noun: str, keys: str) -> list[T]:
    """What `make` returns for every object and its line number, in order; blank lines are skipped.

    `make` may refuse one by raising DataError. `noun` and `keys` (of a line) are for the messages. Raises DataError if
    the file cannot be read or holds no row, or if lines cannot be used: with the reasons for the first ten of them, and
    the number of the others.
    """
    made: list[T] = []
    problems: list[str] = []
    for number, line in _lines(path, noun, keys):
        try:
            if (text := _decoded(line, noun)).strip():
                made.append(make(_object(text), number))
        except (DataError, ValueError) as error:
            problems.append(f"{path}:{number}: {error}")
        except RecursionError:
            problems.append(f"{path}:{number}: The JSON is nested too deeply. A {noun} is one flat object.")
    if problems:
        raise DataError(_told(problems, path))
    if not made:
        raise DataError(f"The {noun} file {path} holds no {noun}. It must hold one JSON object a line.")
    return made


def _told(problems: Sequence[str], path: Path) -> str:
    if len(problems) == 1:
        return problems[0]
    others = len(problems) - MAX_TOLD
    more = [f"... and {others:,} more"] if others > 0 else []
    return "\n".join([f"{len(problems):,} lines of {path} cannot be used:", *problems[:MAX_TOLD], *more])


def _lines(path: Path, noun: str, keys: str) -> Iterator[tuple[int, bytes | None]]:
    try:
        check_regular(path)
        with path.open("rb") as file:
            yield from bounded_lines(file, MAX_LINE_BYTES)
    except (OSError, DataError) as error:
        raise DataError(
            f"The {noun} file {path} cannot be read ({error}).{nearest(path)} It must be a UTF-8 file of JSON lines "
            f"with the keys {keys}."
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
    row = json.loads(text, object_pairs_hook=_without_repeats)
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
    return cast(Mapping[str, object], row)


def _without_repeats(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise DataError(f"The key {repeated!r} comes twice, so one of its values would be lost. Leave one of them out.")
    return row
