"""Reading a corpus: a folder, a single file or JSON lines, to documents with stable ids in a stable order."""

from __future__ import annotations

import logging
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from pydantic import TypeAdapter

from evoseek.corpus.archives import parse_docx, parse_epub, parse_pptx
from evoseek.corpus.decoding import check_encoding, proper, read_bytes
from evoseek.corpus.folder import CorpusFile, find_files
from evoseek.corpus.formats import PARSERS, Parsed
from evoseek.corpus.jsonl import read_jsonl
from evoseek.corpus.mail import parse_message, read_mailbox
from evoseek.corpus.parse_process import ParseProcess
from evoseek.corpus.read_report import ReadReport
from evoseek.corpus.tables import parse_csv, parse_xlsx
from evoseek.errors import DataError, EmptyCorpusError, ToolError
from evoseek.files import nearest
from evoseek.types import Document

MAX_TEXT = 16_000_000  # characters
MAX_SECONDS = 60  # of processor time, for one file or message
_MAX_MEMORY = 2 * 2**30
_MAX_BYTES = 512 * 2**20  # of a file that is more than its text, as one with pictures is
_TEXTS = (".txt", ".md", ".rst", ".org", ".csv", ".tsv", ".jsonl")
_PLAIN = (".txt", ".md")
_PARSED = TypeAdapter(Parsed)
ALL_PARSERS = {
    **PARSERS,
    ".docx": parse_docx,
    ".pptx": parse_pptx,
    ".epub": parse_epub,
    ".eml": parse_message,
    ".csv": parse_csv,
    ".tsv": parse_csv,
    ".xlsx": parse_xlsx,
}
SUFFIXES = (*ALL_PARSERS, ".mbox", ".jsonl")


def read_corpus(
    path: Path,
    *,
    report: ReadReport,
    encoding: str | None = None,
    max_text: int = MAX_TEXT,
    max_seconds: int = MAX_SECONDS,
) -> Iterator[Document]:
    """Yield the documents under `path`: files of the types in `SUFFIXES` (.pdf, .docx, .pptx and .xlsx need an extra),
    also compressed by gzip (`page.html.gz`; `NAME.gz` is plain text).

    The id is the path inside the folder (of a mailbox with the number of the message), or the `id` of a JSON line; of
    equal ids the first is read. Whatever cannot be read is skipped and recorded in `report`. `encoding` is that of text
    files that are not UTF-8; if it is None, the encoding is guessed, which is recorded in `report` too. `max_text` is
    the length of the longest text in characters, `max_seconds` the processor time for one file. At most one file (or
    line, or message) is held at a time, beside the ids read so far. ConfigError for an unknown encoding, DataError if
    there is nothing at `path`; EmptyCorpusError, at the end, if nothing was read.
    """
    return _read(path, find_readable(path, report, encoding), report, Reading(max_text, max_seconds, encoding))


@cache
def _shared_process(cpu_s: int) -> ParseProcess:
    """One for all corpora, since it takes a second to start."""
    return ParseProcess("evoseek.corpus.parse_worker", cpu_s=cpu_s, wall_s=5 * cpu_s, memory_bytes=_MAX_MEMORY)


@dataclass(frozen=True, slots=True)
class Reading:
    """How files are read: the longest text, the most processor time for a file, the encoding of text that is not UTF-8,
    and the process (None: a shared one) that parses all formats but plain text and Markdown, whose parsers cannot take
    long."""

    max_text: int = MAX_TEXT
    max_seconds: int = MAX_SECONDS
    encoding: str | None = None
    process: ParseProcess | None = None

    def max_bytes(self, suffix: str) -> int:
        """The most bytes of a file or line that are read: a text has four for a character at most."""
        return 4 * self.max_text if suffix in _TEXTS else _MAX_BYTES

    def parse(self, suffix: str, data: bytes) -> Parsed:
        """What a file of this type holds. Raises DataError, whose text is only the reason, if it cannot be read."""
        if suffix in _PLAIN:
            return parse_document(suffix, data, self.encoding)
        try:
            process = self.process or _shared_process(self.max_seconds)
            found = dict(process.ask({"suffix": suffix, "encoding": self.encoding}, data))
        except ToolError as error:
            raise DataError(f"cannot be parsed: {error}") from error
        if problem := found.get("problem"):
            raise DataError(f"{problem}{': raise --max-seconds' if found.get('is_slow') else ''}")
        return _PARSED.validate_python(found)


def _read(path: Path, files: Iterator[CorpusFile], report: ReadReport, how: Reading) -> Iterator[Document]:
    seen: set[str] = set()
    for file in files:
        yield from read_documents(file, seen, report, how)
    check_read(path, report)


def find_readable(path: Path, report: ReadReport, encoding: str | None) -> Iterator[CorpusFile]:
    """The files that there is a reader for, in order; the others are counted in `report`. Raises as `read_corpus`."""
    if encoding is not None:
        check_encoding(encoding)
    try:
        exists = path.exists()
    except OSError as error:
        raise _unreadable(path, error) from error
    if not exists:
        raise DataError(
            f"There is no corpus at {path}.{nearest(path)} Give a folder, or a file of type {', '.join(SUFFIXES)}."
        )
    return _find(path, report)


def _find(path: Path, report: ReadReport) -> Iterator[CorpusFile]:
    try:
        for file in find_files(path, report):
            if (suffix := _type(file.path)) in SUFFIXES:
                yield file
            else:
                report.other_types[suffix or "no suffix"] += 1
    except OSError as error:
        raise _unreadable(path, error) from error


def _type(path: Path) -> str:
    """The suffix that says how a file is read."""
    *before, last = [".txt", *path.suffixes] if path.suffix else [""]
    inner = before[-1].lower() if last.lower() == ".gz" else ""
    return inner if inner in SUFFIXES else last.lower()


def read_documents(file: CorpusFile, seen: set[str], report: ReadReport, how: Reading) -> Iterator[Document]:
    """The documents of one file whose ids are not among `seen`, to which they are added."""
    for document, line in _read_file(file, report, how):
        if not document.text.strip():
            report.skip(file.path, "empty", line)
        elif (length := len(document.text)) > how.max_text:
            reason = f"text is too long: {length:,} characters, more than {how.max_text:,}: raise --max-text"
            report.skip(file.path, reason, line)
        elif document.id in seen:
            report.skip(file.path, f"duplicate id: {document.id}", line)
        else:
            seen.add(document.id)
            report.read += 1
            yield _tidy(document, file.id)


def check_read(path: Path, report: ReadReport) -> None:
    """Raises EmptyCorpusError if nothing was read."""
    if not report.read:
        raise EmptyCorpusError(
            f"No readable document was found in {path}: {report.summary()}. Expected files of type "
            f"{', '.join(SUFFIXES)}; the first that were skipped:\n{report.table(5) or '(none)'}"
        )


def _tidy(document: Document, file: str) -> Document:
    """Without white space around the text and the pieces of the title."""
    start = len(document.text) - len(document.text.lstrip())
    return replace(
        document,
        title=proper(" ".join(document.title.split())),
        text=proper(document.text.strip()),
        file=file,
        marks=tuple(
            replace(mark, start=max(0, mark.start - start), heading=mark.heading and proper(mark.heading))
            for mark in document.marks
        ),
    )


def _unreadable(path: Path, error: OSError) -> DataError:
    return DataError(
        f"The corpus {path} cannot be read: {error.strerror or error}. Give a folder or file that this user may read."
    )


def parse_document(suffix: str, data: bytes, encoding: str | None) -> Parsed:
    """What a file of this type holds, parsed in this process, with what its library warned of: through logging or
    `warnings`, which would show it without the name of the file. Raises DataError, whose text is only the reason."""
    log, found = logging.getLogger(), _Records()
    log.addHandler(found)
    try:
        with warnings.catch_warnings(record=True) as raised:
            parsed = ALL_PARSERS[suffix](data, encoding)
    except (DataError, MemoryError):
        raise
    except RecursionError as error:
        raise DataError("cannot be parsed: it is nested too deeply") from error
    except Exception as error:  # parsers of other people's formats fail in ways that they do not document
        raise DataError(f"cannot be parsed: {type(error).__name__}: {error}") from error
    finally:
        log.removeHandler(found)
    return parsed._replace(warnings=tuple(dict.fromkeys([*found.texts, *(str(one.message) for one in raised)])))


class _Records(logging.Handler):
    """Keeps warnings, without trafilatura's: where that finds nothing in a page, all of its text is read."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        library = record.name.partition(".")[0]
        if library != "trafilatura":
            self.texts.append(f"{library}: {record.getMessage()}")


def _read_file(file: CorpusFile, report: ReadReport, how: Reading) -> Iterator[tuple[Document, int | None]]:
    suffix = _type(file.path)
    try:
        if suffix == ".jsonl":
            yield from read_jsonl(file.path, report, how.max_bytes(suffix))
        elif suffix == ".mbox":
            yield from read_mailbox(file.path, file.id, report, how.max_bytes(suffix), partial(how.parse, ".eml"))
        else:
            parsed = how.parse(suffix, read_bytes(file.path, how.max_bytes(suffix)))
            if parsed.guessed:
                report.guess(file.path, parsed.guessed)
            for text in parsed.warnings:
                report.warn(file.path, text)
            title = parsed.title if parsed.title.strip() else Path(file.id.removesuffix(".gz")).stem
            yield Document(file.id, title, parsed.text, marks=parsed.marks), None
    except DataError as error:
        report.skip(file.path, str(error))
    except OSError as error:
        report.skip(file.path, f"cannot be read: {error.strerror or error}")
    except (EOFError, zlib.error) as error:  # of what is compressed
        report.skip(file.path, f"cannot be read: {error}")
