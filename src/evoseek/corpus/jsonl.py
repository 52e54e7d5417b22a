"""Documents from JSON lines, in the two shapes that retrieval corpora have.

{"id": "7", "contents": "\\"Kalo\\"\\nKalo is a city ..."}      title, newline, text (Search-R1, FlashRAG, Pyserini)
{"id": "7", "title": "Kalo", "text": "Kalo is a city ..."}     (BEIR, DPR)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, cast

from evoseek.corpus.decoding import check_regular, opened, proper
from evoseek.corpus.read_report import ReadReport
from evoseek.errors import DataError
from evoseek.types import Document

_MAX_ID_CHARACTERS = 1_000


def read_jsonl(path: Path, report: ReadReport, max_line_bytes: int) -> Iterator[tuple[Document, int]]:
    """Documents with their line numbers (from 1). Lines without a document are skipped and reported; empty lines are
    ignored. Never holds more than `max_line_bytes` of the file."""
    check_regular(path)
    with opened(path) as file:
        for number, line in bounded_lines(file, max_line_bytes):
            try:
                if line is None:
                    raise DataError(f"line is too long: more than {max_line_bytes:,} bytes: raise --max-text")
                if line.strip():
                    yield parse_line(line), number
            except DataError as error:
                report.skip(path, str(error), number)


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


def parse_line(line: bytes) -> Document:
    """Parse one line to a document. Raises DataError, whose text is only the reason, if it is not one."""
    if b"\0" in line:
        raise DataError("binary: holds NUL bytes")
    try:
        record = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DataError("encoding not recognised: JSON lines are UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"broken JSON: {error}") from error
    if not isinstance(record, dict):
        raise DataError(f"wrong type: a JSON object was expected, not {type(record).__name__}")
    fields = cast(Mapping[str, object], record)
    identifier = _identifier(fields.get("id"))
    if "contents" in fields:
        title, _, text = _string(fields, "contents").partition("\n")
        if not text:  # one line alone is a text without a title
            title, text = "", title
        return Document(identifier, _unquoted(title), text)
    return Document(identifier, _string(fields, "title", ""), _string(fields, "text"))


def _identifier(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise DataError("wrong type: `id` must be a text or a whole number" if value is not None else "no `id`")
    identifier = proper(str(value))
    if len(identifier) > _MAX_ID_CHARACTERS:
        raise DataError(f"`id` is too long: more than {_MAX_ID_CHARACTERS:,} characters")
    return identifier


def _string(fields: Mapping[str, object], key: str, default: str | None = None) -> str:
    value = fields.get(key, default)
    if value is None:
        raise DataError("neither `contents` nor `text`" if key not in fields else f"wrong type: `{key}` is null")
    if not isinstance(value, str):
        raise DataError(f"wrong type: `{key}` must be a text, not {type(value).__name__}")
    if "\0" in value:
        raise DataError("binary: holds NUL characters")
    return proper(value)


def _unquoted(title: str) -> str:
    """The title without the quotation marks that some corpora put around it."""
    title = title.strip()
    return title[1:-1] if len(title) > 1 and title[0] == title[-1] == '"' else title
