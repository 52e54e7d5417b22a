"""Reads a corpus (a folder, a single file or JSON lines) to documents with stable ids in a stable order.

It reads files of the types in `SUFFIXES` (.pdf, .docx, .pptx, .epub and .xlsx need an extra). A document's id is its
path inside the folder (with the place of a table's row), or the `id` of a JSON line; if ids are equal, the first one is
read. Files that cannot be read are skipped and recorded in a `ReadReport`. At most one file (or line) is held at a
time, plus digests of the ids read so far.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from itertools import filterfalse
from pathlib import Path
from typing import cast

from evoseek.documents.parsing import PARSERS, Reading
from evoseek.documents.read_report import ReadReport
from evoseek.errors import DataError, EmptyCorpusError, ToolError
from evoseek.storage.files import nearest
from evoseek.text.decoding import LINK_OUT, bounded_lines, check_encoding, open_regular, read_bytes, too_large
from evoseek.text.duplicates import TextSet
from evoseek.text.scripts import well_formed
from evoseek.types import Document, Mark, Passage

_LINES = ".jsonl"
SUFFIXES = (*PARSERS, _LINES)
_LEFTOVER = re.compile(
    r"~\$.+|\.~lock\..+#|\.#.+|#.+#|.+~|\.(?:.+\.)?sw[a-p]|\._.+|\.DS_Store|Thumbs\.db|desktop\.ini",
    re.IGNORECASE | re.DOTALL,
)
"""Files that office programs, editors and systems leave in a folder."""

_MAX_ID_CHARACTERS = 1_000
_TOLD = 500  # lines after which the report gets the position


@dataclass(frozen=True, slots=True)
class CorpusFile:
    """A file to read. `id` is its path relative to the corpus, with forward slashes. `within` is the real folder of the
    corpus: links must not lead out of it (None: links are followed)."""

    path: Path
    id: str
    within: Path | None = None

    @property
    def suffix(self) -> str:
        """The suffix that determines how to read the file."""
        return self.path.suffix.lower()


def find_readable(path: Path, report: ReadReport, how: Reading) -> Iterator[CorpusFile]:
    """Yield the files that have a reader, in order. `report` counts the others, except leftovers of programs that edit
    a file. Raises ConfigError for an unknown encoding, DataError if there is nothing at `path`."""
    if how.encoding is not None:
        check_encoding(how.encoding)
    try:
        if not path.exists():
            raise DataError(
                f"There is no corpus at {path}.{nearest(path)} Give a folder, or a file of type {', '.join(SUFFIXES)}.",
                code="corpus.missing",
            )
        for file in find_files(path, report, follow_links=how.follow_links):
            if file.suffix in SUFFIXES:
                yield file
            else:
                report.add_other(file.path, file.suffix)
    except OSError as error:
        raise DataError(
            f"The corpus {path} cannot be read: {error.strerror or error}. Give a folder or file that this user may "
            "read.",
            code="corpus.unreadable",
        ) from error


def find_files(root: Path, report: ReadReport, *, follow_links: bool = False) -> Iterator[CorpusFile]:
    """Yield every file under `root` (or `root` itself if it is a file), sorted by name within each folder.

    Leftovers of programs (locks, backups, thumbnails) are ignored. Hidden folders, folders that cannot be listed, links
    out of the corpus, and links to a folder in or around it are skipped. With `follow_links`, links out of the corpus
    are followed, and each real folder is read once.
    """
    if not root.is_dir():
        yield CorpusFile(root, _text(root.name))
        return
    real = Path(os.path.realpath(root))
    within, entered, pending = None if follow_links else real, {real}, [(root, real)]
    while pending:
        folder, place = pending.pop()
        try:
            names = sorted(os.listdir(folder))
        except OSError as error:
            report.skipped.add(folder, f"folder cannot be listed: {error.strerror}")
            continue
        subfolders = list[tuple[Path, Path]]()
        for name in filterfalse(is_leftover, names):
            path, leads_to = folder / name, place / name
            try:
                is_link, is_folder = stat.S_ISLNK(os.lstat(path).st_mode), os.path.isdir(path)
            except OSError as error:
                report.skipped.add(path, f"cannot be read: {error.strerror}")
                continue
            if is_link:
                leads_to = Path(os.path.realpath(path))
            reason = _why_not_entered(name, leads_to, real, entered, is_link=is_link) if is_folder else ""
            if is_link and within and not leads_to.is_relative_to(within):
                reason = LINK_OUT
            if reason:
                report.skipped.add(path, reason)
            elif is_folder:
                entered.add(leads_to)
                subfolders.append((path, leads_to))
            else:
                yield CorpusFile(path, _text(path.relative_to(root).as_posix()), within)
        pending += reversed(subfolders)


def is_leftover(name: str) -> bool:
    """Return whether a file of this name is a lock, a backup or a thumbnail, which other programs leave."""
    return _LEFTOVER.fullmatch(name) is not None


def _why_not_entered(name: str, real: Path, root: Path, entered: Set[Path], *, is_link: bool) -> str:
    """Return why a folder is skipped; "" for a folder that is entered."""
    if name.startswith("."):
        return "hidden folder"
    if is_link and (real.is_relative_to(root) or root.is_relative_to(real)):
        return "link that leads back into the corpus"
    if real in entered:
        return "folder that was read under another name"
    return ""


def _text(path: str) -> str:
    """Return the path as valid Unicode: bytes that are not UTF-8 become the replacement character."""
    return os.fsencode(path).decode("utf-8", "replace")


def read_documents(file: CorpusFile, seen: TextSet, report: ReadReport, how: Reading) -> Iterator[Document]:
    """Yield the documents of one file whose ids are not in `seen`, and add their ids."""
    for document, line in _read_file(file, report, how):
        if not document.text.strip():
            report.skipped.add(file.path, "empty", line)
        elif (length := len(document.text)) > how.max_text:
            reason = f"text is too long: {length:,} characters, more than {how.max_text:,}: raise --max-text"
            report.skipped.add(file.path, reason, line)
        elif not seen.add(document.id):
            report.skipped.add(file.path, f"duplicate id: {document.id}", line)
        else:
            report.read += 1
            yield _tidy(document, file.id)


def check_read(path: Path, report: ReadReport) -> None:
    """Raise EmptyCorpusError if nothing was read."""
    if not report.read:
        skipped = "\n".join(filter(None, (report.table(5), report.missed_table())))
        raise EmptyCorpusError(
            f"No readable document was found in {path}: {report.summary()}. Expected files of type "
            f"{', '.join(SUFFIXES)}; the first that were skipped:\n{skipped or '(none)'}"
        )


def _read_file(file: CorpusFile, report: ReadReport, how: Reading) -> Iterator[tuple[Document, int | None]]:
    """Yield the documents of a file, each with its line if there are several."""
    limit = how.max_bytes(file.suffix)
    try:
        if file.suffix == _LINES:
            yield from _read_lines(file, limit, report)
        else:
            for document in _parsed(file, read_bytes(file.path, limit, file.within), report, how):
                yield document, None
    except DataError as error:
        _skip(file, error, report)
    except OSError as error:
        report.skipped.add(file.path, f"cannot be read: {error.strerror or error}")
        report.is_passing = True


def _skip(file: CorpusFile, error: DataError, report: ReadReport, line: int | None = None) -> None:
    report.skipped.add(file.path, str(error), line)
    report.is_passing |= isinstance(error.__cause__, ToolError | OSError)  # ToolError: from the parsing process


def _read_lines(file: CorpusFile, limit: int, report: ReadReport) -> Iterator[tuple[Document, int]]:
    """Yield the documents of a JSON-lines file, each with its line. At most `limit` bytes are held at a time."""
    with open_regular(file.path, file.within) as data:
        for number, line in bounded_lines(data, limit):
            if number % _TOLD == 0:
                report.position = os.lseek(data.fileno(), 0, os.SEEK_CUR)
            try:
                if line is None:
                    raise too_large("line", limit)
                if line.strip():
                    yield _parse_line(line), number
            except DataError as error:
                _skip(file, error, report, number)


def _parsed(file: CorpusFile, data: bytes, report: ReadReport, how: Reading) -> Iterator[Document]:
    """Yield the document of a file, titled by its contents or else by the file's name; of a table, each row."""
    parsed = how.parse(file.suffix, data)
    if parsed.guessed:
        report.guessed.add(file.path, parsed.guessed)
    for text in parsed.warnings:
        report.warnings.add(file.path, text)
    name = Path(file.id).stem
    for row in parsed.rows:
        title = row.title or f"{name}, {row.place}"
        yield Document(f"{file.id}/{row.place}", title, row.text, marks=(Mark(0, heading=row.place),))
    if not parsed.rows:
        yield Document(file.id, parsed.title if parsed.title.strip() else name, parsed.text, marks=parsed.marks)


def _tidy(document: Document, file: str) -> Document:
    """Strip white space around the text and the pieces of the title."""
    start = len(document.text) - len(document.text.lstrip())
    return replace(
        document,
        title=well_formed(" ".join(document.title.split())),
        text=well_formed(document.text.strip()),
        file=file,
        marks=tuple(
            replace(mark, start=max(0, mark.start - start), heading=mark.heading and well_formed(mark.heading))
            for mark in document.marks
        ),
    )


def _parse_line(line: bytes) -> Document:
    """Parse a document from a line of JSON, in one of the two shapes of retrieval corpora:

    {"id": "7", "contents": "\\"Kalo\\"\\nKalo is a city ..."}      title, newline, text (Search-R1, FlashRAG, Pyserini)
    {"id": "7", "title": "Kalo", "text": "Kalo is a city ..."}     (BEIR, DPR)
    """
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
        return Document(identifier, *Passage.parse_contents(_string(fields, "contents")))
    return Document(identifier, _string(fields, "title", ""), _string(fields, "text"))


def _identifier(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise DataError("wrong type: `id` must be a text or a whole number" if value is not None else "no `id`")
    identifier = well_formed(str(value))
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
    return well_formed(value)
