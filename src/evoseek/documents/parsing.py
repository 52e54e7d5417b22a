"""Every format with a reader, and how to parse a file of it: within bounds, and usually in a process that hostile files
can only kill."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import PurePath
from typing import Any

from pydantic import TypeAdapter

from evoseek.documents.archives import parse_docx, parse_epub, parse_pptx
from evoseek.documents.formats import (
    Parsed,
    parse_html,
    parse_markdown,
    parse_message,
    parse_pdf,
    parse_picture,
    parse_plain,
)
from evoseek.documents.parse_process import ParseProcess
from evoseek.documents.scans import PICTURES, can_recognise
from evoseek.documents.tables import parse_csv, parse_xlsx
from evoseek.errors import DataError, ToolError

MAX_TEXT = 16_000_000  # characters
MAX_SECONDS = 60  # of processor time, for one file or message
_DEEPEST = 5  # depth of nested messages whose attachments are read
_MAX_MEMORY = 2 * 2**30
_MAX_BYTES = 512 * 2**20  # of a file that is more than its text, for example pictures
_TEXTS = (".txt", ".md", ".csv", ".tsv", ".jsonl")
_PLAIN = (".txt", ".md")
_PARSED = TypeAdapter(Parsed)
PARSERS: Mapping[str, Callable[[bytes, str | None], Parsed]] = {
    ".txt": parse_plain,
    ".md": parse_markdown,
    ".html": parse_html,
    ".htm": parse_html,
    ".pdf": parse_pdf,
    ".docx": parse_docx,
    ".pptx": parse_pptx,
    ".epub": parse_epub,
    ".eml": lambda data, encoding: parse_message(data, encoding, partial(_attached, encoding, 0)),
    ".csv": parse_csv,
    ".tsv": parse_csv,
    ".xlsx": parse_xlsx,
    ".xlsm": parse_xlsx,
    **(dict.fromkeys(PICTURES, parse_picture) if can_recognise() else {}),
}


def _attached(encoding: str | None, depth: int, name: str, data: bytes) -> Parsed | None:
    """Parse an attachment; None if there is no reader for it. DataError if the reader fails."""
    suffix = PurePath(name.lower()).suffix
    if suffix not in PARSERS or (suffix == ".eml" and depth == _DEEPEST):
        return None
    try:
        if suffix == ".eml":
            return parse_message(data, encoding, partial(_attached, encoding, depth + 1))
        return PARSERS[suffix](data, encoding)
    except (DataError, MemoryError, RecursionError):
        raise
    except Exception as error:  # as in `parse_document`
        raise DataError(f"cannot be parsed: {type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class Reading:
    """How to read files: the maximum text length and processor time for a file, the encoding of text that is not UTF-8,
    whether to follow links out of the corpus, and the process (None: a shared one) that parses all formats except plain
    text and Markdown, whose parsers are fast."""

    max_text: int = MAX_TEXT
    max_seconds: int = MAX_SECONDS
    encoding: str | None = None
    follow_links: bool = False
    process: ParseProcess | None = None

    def max_bytes(self, suffix: str) -> int:
        """Return the maximum bytes of a file or line; a character of text has at most four."""
        return 4 * self.max_text if suffix in _TEXTS else _MAX_BYTES

    def parse(self, suffix: str, data: bytes) -> Parsed:
        """Parse a file of this type. Raises DataError, whose text is only the reason, if it cannot be read."""
        if suffix in _PLAIN:
            return parse_document(suffix, data, self.encoding)
        try:
            process = self.process or _shared_process(self.max_seconds)
            found = dict(process.parse({"suffix": suffix, "encoding": self.encoding}, data))
        except ToolError as error:
            raise DataError(f"cannot be parsed: {error}") from error
        if problem := found.get("problem"):
            raise DataError(f"{problem}{': raise --max-seconds' if found.get('is_slow') else ''}")
        return _PARSED.validate_python(found)


@cache
def _shared_process(cpu_s: int) -> ParseProcess:
    """Return one process for all corpora, since starting one takes a second."""
    return ParseProcess(f"{__name__}:answer", cpu_s=cpu_s, wall_s=5 * cpu_s, memory_bytes=_MAX_MEMORY)


def answer(header: Mapping[str, Any], body: bytes) -> Mapping[str, object]:
    """Answer a request of a `ParseProcess`: return the contents of a file, or the `problem` with it."""
    try:
        parsed = parse_document(header["suffix"], body, header["encoding"])
    except DataError as error:
        return {"problem": str(error)}
    return {**parsed._asdict(), "marks": [asdict(mark) for mark in parsed.marks]}


def parse_document(suffix: str, data: bytes, encoding: str | None) -> Parsed:
    """Parse a file of this type in this process, and collect the library's warnings (from logging or `warnings`), which
    lack the name of the file. Raises DataError, whose text is only the reason."""
    log, found = logging.getLogger(), _Records()
    log.addHandler(found)
    try:
        with warnings.catch_warnings(record=True) as raised:
            parsed = PARSERS[suffix](data, encoding)
    except (DataError, MemoryError):
        raise
    except RecursionError as error:
        raise DataError("cannot be parsed: it is nested too deeply") from error
    except Exception as error:  # parsers fail in undocumented ways
        raise DataError(f"cannot be parsed: {type(error).__name__}: {error}") from error
    finally:
        log.removeHandler(found)
    return parsed._replace(warnings=tuple(dict.fromkeys([*found.texts, *(str(one.message) for one in raised)])))


class _Records(logging.Handler):
    """Keeps warnings except trafilatura's: if it finds nothing in a page, all of the page's text is read."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        library = record.name.partition(".")[0]
        if library != "trafilatura":
            self.texts.append(f"{library}: {record.getMessage()}")
