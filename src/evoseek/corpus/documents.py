"""Reading a corpus: a folder, a single file or JSON lines, to documents with stable ids in a stable order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from evoseek.corpus.decoding import check_encoding, read_bytes
from evoseek.corpus.folder import CorpusFile, find_files
from evoseek.corpus.formats import PARSERS
from evoseek.corpus.jsonl import read_jsonl
from evoseek.corpus.read_report import ReadReport
from evoseek.errors import DataError, EmptyCorpusError
from evoseek.files import nearest
from evoseek.types import Document

MAX_LINE_BYTES = 16 * 2**20
MAX_FILE_BYTES = 16 * 2**20
SUFFIXES = (*PARSERS, ".jsonl")


def read_corpus(
    path: Path,
    *,
    report: ReadReport,
    encoding: str | None = None,
    max_line_bytes: int = MAX_LINE_BYTES,
    max_file_bytes: int = MAX_FILE_BYTES,
) -> Iterator[Document]:
    """Yield the documents under `path`: .txt, .md, .html, .htm, .pdf (an extra) and .jsonl.

    The id is the path inside the folder, or the `id` of a JSON line; of equal ids the first is read. Whatever cannot be
    read is skipped and recorded in `report`. `encoding` is that of text files that are not UTF-8; if it is None, the
    encoding is guessed, which is recorded in `report` too. At most one file (or line) of the given size is held at a
    time, beside the ids read so far. ConfigError for an unknown encoding, DataError if there is nothing at `path`;
    EmptyCorpusError, at the end, if nothing was read.
    """
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
    return _read(path, report, _Reading(max_line_bytes, max_file_bytes, encoding))


class _Reading(NamedTuple):
    line_bytes: int
    file_bytes: int
    encoding: str | None


def _read(path: Path, report: ReadReport, how: _Reading) -> Iterator[Document]:
    seen: set[str] = set()
    try:
        for file in find_files(path, report):
            for document, line in _read_file(file, report, how):
                if not document.text.strip():
                    report.skip(file.path, "empty", line)
                elif document.id in seen:
                    report.skip(file.path, f"duplicate id: {document.id}", line)
                else:
                    seen.add(document.id)
                    report.read += 1
                    yield _tidy(document, file.id)
    except OSError as error:  # of the folders: a file that cannot be read is skipped
        raise _unreadable(path, error) from error
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
        title=" ".join(document.title.split()),
        text=document.text.strip(),
        file=file,
        marks=tuple(replace(mark, start=max(0, mark.start - start)) for mark in document.marks),
    )


def _unreadable(path: Path, error: OSError) -> DataError:
    return DataError(
        f"The corpus {path} cannot be read: {error.strerror or error}. Give a folder or file that this user may read."
    )


def _read_file(file: CorpusFile, report: ReadReport, how: _Reading) -> Iterator[tuple[Document, int | None]]:
    suffix = file.path.suffix.lower()
    try:
        if suffix == ".jsonl":
            yield from read_jsonl(file.path, report, how.line_bytes)
        elif suffix in PARSERS:
            parsed = PARSERS[suffix](read_bytes(file.path, how.file_bytes), how.encoding)
            if parsed.guessed:
                report.guess(file.path, parsed.guessed)
            title = parsed.title if parsed.title.strip() else Path(file.id).stem
            yield Document(file.id, title, parsed.text, marks=parsed.marks), None
        else:
            report.other_types[suffix or "no suffix"] += 1
    except DataError as error:
        report.skip(file.path, str(error))
    except OSError as error:
        report.skip(file.path, f"cannot be read: {error.strerror}")
    except Exception as error:  # parsers of other people's formats fail in ways that they do not document
        report.skip(file.path, f"cannot be parsed: {type(error).__name__}: {error}")
