"""Records the files of an index, and reads a corpus again with only the changed files.

An index of `evoseek index` has `sources.json` in its data folder: for every file its checksum, the number of its
passages and the report of its reading. Unchanged files are not read again: their passages are copied from the old index
to the places of a fresh build, so that the new index equals a fresh build.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from importlib.metadata import PackageNotFoundError, version
from io import BufferedReader
from itertools import accumulate, islice
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from evoseek.documents.documents import CorpusFile, check_read, find_readable, read_documents
from evoseek.documents.parsing import MAX_SECONDS, MAX_TEXT, Reading
from evoseek.documents.passages import count_words, split_document
from evoseek.documents.read_report import Note, Notes, ReadReport, counted
from evoseek.errors import DataError, SearchIndexError
from evoseek.search.lexical import SOURCES, LexicalIndex, Spans
from evoseek.search.manifest import REMEDY
from evoseek.storage.files import json_digest
from evoseek.text.decoding import open_regular
from evoseek.text.duplicates import TextSet
from evoseek.types import Passage

_FORMATS = 8  # increment it if the same file gives another text than before
_TOLD = 500  # passages between two calls of `progress` in one file
_READERS = (
    *("evoseek", "trafilatura", "markdown-it-py", "charset-normalizer", "pypdf", "cryptography"),
    *("markitdown", "mammoth", "python-pptx", "openpyxl", "rapidocr", "pypdfium2"),
)

_DEFAULT_READING = Reading()


class Source(BaseModel):
    """A file at the time of reading: its path within the corpus, its checksum ("" if it cannot be read), the number of
    its passages and of their words, and its own part of `ReadReport`."""

    model_config = ConfigDict(extra="forbid", strict=True)
    file: str
    sha256: str
    passages: int = 0
    words: int = 0
    read: int = 0
    skipped: list[tuple[int | None, str]] = []
    reasons: dict[str, int] = {}
    guessed: list[str] = []
    guesses: dict[str, int] = {}
    warnings: list[str] = []
    is_passing: bool = False

    @property
    def has_duplicates(self) -> bool:
        """Whether a document was skipped because another one has its id: it is read once the other one is gone."""
        return "duplicate id" in self.reasons

    def report(self, path: Path) -> ReadReport:
        """Return the report of reading this file, as if it were read now."""
        return ReadReport(
            read=self.read,
            skipped=Notes((Note(path, reason, line) for line, reason in self.skipped), self.reasons),
            guessed=Notes((Note(path, encoding) for encoding in self.guessed), self.guesses),
            warnings=Notes(Note(path, text) for text in self.warnings),
        )


class Sources(BaseModel):
    """All files, in the order of their passages, and how they were read and cut. `reader` names the versions of the
    reading programs, since other versions may read a file differently; `corpus` is the files' folder or file."""

    model_config = ConfigDict(extra="forbid", strict=True)
    reader: str
    encoding: str | None
    max_words: int
    files: list[Source]
    corpus: str = ""
    max_text: int = MAX_TEXT
    max_seconds: int = MAX_SECONDS
    follow_links: bool = False


class FileOrigin(NamedTuple):
    """A file from which passages were read, its checksum at that time, and the folder that no link to it may leave."""

    path: Path
    sha256: str
    within: Path | None = None

    def opened(self) -> BufferedReader | None:
        """Open the file if it is unchanged. So an index made by somebody else, or a link in the file's place, cannot
        expose another file of this machine."""
        try:
            file = open_regular(self.path, self.within)
        except (DataError, OSError):
            return None
        if hashlib.file_digest(file, "sha256").hexdigest() != self.sha256:
            file.close()
            return None
        file.seek(0)
        return file


def sources_of(index: LexicalIndex) -> Sources | None:
    """Return the record of an opened index's files; None without one. Raises OSError if the index was replaced."""
    if SOURCES not in index.manifest.files:
        return None
    try:
        return Sources.model_validate_json((index.directory / index.manifest.data / SOURCES).read_bytes())
    except ValidationError:  # of another version
        return None


def is_in(file: str, folders: Collection[str]) -> bool:
    """Return whether a file stands in one of these folders, or is named itself."""
    return any(f"{file}/".startswith(f"{folder}/") for folder in folders)


def places_in(sources: Sources, folders: Collection[str]) -> Spans:
    """Return the places of the passages whose files stand in these folders."""
    spans, end = list[tuple[int, int]](), 0
    for source in sources.files:
        start, end = end, end + source.passages
        if source.passages and is_in(source.file, folders):
            first = spans.pop()[0] if spans and spans[-1][1] == start else start
            spans.append((first, end))
    return tuple(spans)


def files_of(sources: Sources | None) -> dict[str, FileOrigin]:
    """Return the files from which the passages of an index were read, by their paths within the corpus; none if the
    index does not record them, or the corpus is gone."""
    try:
        root = Path(sources.corpus if sources else "")
        is_file = root.is_file()
        if sources is None or not sources.corpus or not root.exists():
            return {}
    except OSError:  # also for a corpus that this user may not see
        return {}
    read = [source for source in sources.files if source.passages]
    within = None if sources.follow_links else root.parent if is_file else root
    return {source.file: FileOrigin(root if is_file else root / source.file, source.sha256, within) for source in read}


class Recorded:
    """An index with the record of its files."""

    def __init__(self, index: LexicalIndex) -> None:
        """Read the record. SearchIndexError if there is none: the index is of an earlier version, or from passages."""
        path = index.directory / index.manifest.data / SOURCES
        try:
            self.sources = Sources.model_validate_json(path.read_bytes())
        except FileNotFoundError as error:
            raise SearchIndexError(
                f"The search index in {index.directory} does not record the files that it was built from (it is of an "
                f"earlier version, or was built from Python), so it cannot be updated. {REMEDY}"
            ) from error
        except (OSError, ValidationError) as error:
            raise SearchIndexError(f"The record {path} cannot be read: {error}. {REMEDY}") from error
        self.index = index
        self._places = list(accumulate((source.passages for source in self.sources.files), initial=0))
        self._taken, self._passages = 0, iter(index.passages())
        self._by_file = {source.file: place for place, source in enumerate(self.sources.files)}

    def unchanged(self, source: Source) -> Source | None:
        """Return the record of a file whose passages can be reused; None if the file must be read."""
        if (number := self._by_file.get(source.file)) is None:
            return None
        earlier = self.sources.files[number]
        is_same = earlier.sha256 == source.sha256 != "" and not (earlier.has_duplicates or earlier.is_passing)
        return earlier if is_same and self._places[number] >= self._taken else None

    def passages(self, file: str) -> Iterator[Passage]:
        """Yield the passages of an unchanged file. Call it file by file, in one pass."""
        number = self._by_file[file]
        found = islice(self._passages, self._places[number] - self._taken, self._places[number + 1] - self._taken)
        self._taken = self._places[number + 1]
        return found

    def file_with(self, document_id: str) -> str | None:
        """Return the file from which a document was read; None if there is no such document."""
        place = self.index.place_of(document_id)
        return None if place is None else self.sources.files[bisect_right(self._places, place) - 1].file


class CorpusPassages:
    """The passages of a corpus, file by file. Files that are unchanged since `before` are not read; their passages are
    copied from there. `report` becomes the report on all files; `sources` the record, once all passages were taken, or
    if nothing has changed.

    Raises as `find_readable`, and EmptyCorpusError at the end if nothing was read.
    """

    def __init__(
        self,
        corpus: Path,
        *,
        report: ReadReport,
        how: Reading = _DEFAULT_READING,
        max_words: int = 100,
        before: Recorded | None = None,
    ) -> None:
        self._corpus, self._report, self._how = corpus, report, how
        self._files = [(file, _digest(file)) for file in find_readable(corpus, report, how)]
        self.sources = Sources(
            reader=_reader(),
            encoding=how.encoding,
            max_words=max_words,
            files=[],
            corpus=str(corpus.resolve()),
            max_text=how.max_text,
            max_seconds=how.max_seconds,
            follow_links=how.follow_links,
        )
        same_reader = before is not None and before.sources.reader == self.sources.reader
        self.is_read_anew = before is not None and not same_reader
        self._before = before if same_reader else None
        self._earlier = {source.file: source.sha256 for source in before.sources.files} if before else {}

    @property
    def is_unchanged(self) -> bool:
        """Whether every file of the corpus is as recorded. `report` is then complete."""
        now = [(file.id, digest) for file, digest in self._files]
        if self._before is None or now != list(self._earlier.items()):
            return False
        if any(source.is_passing and source.sha256 for source in self._before.sources.files):
            return False  # files without a checksum can still not be read
        for (file, _), source in zip(self._files, self._before.sources.files, strict=True):
            self._report.add(source.report(file.path))
        self.sources.files = self._before.sources.files
        return True

    @property
    def key(self) -> str:
        """A key that identifies the passages: the same files, read and cut in the same way."""
        return json_digest([self.sources.model_dump(exclude={"files", "corpus"}), [(f.id, d) for f, d in self._files]])

    def changes(self) -> str:
        """Return one line with counts of new, changed and removed files."""
        now = {file.id: digest for file, digest in self._files}
        gone = Counter(digest for file, digest in self._earlier.items() if file not in now and digest)
        new = Counter(digest for file, digest in now.items() if file not in self._earlier and digest)
        renamed = (gone & new).total()
        counts = {
            "new": len(now.keys() - self._earlier.keys()) - renamed,
            "changed": sum(now[file] != digest for file, digest in self._earlier.items() if file in now),
            "renamed": renamed,
            "deleted": len(self._earlier.keys() - now.keys()) - renamed,
            "unchanged": sum(now.get(file) == digest for file, digest in self._earlier.items()),
        }
        return "Files: " + ", ".join(f"{count:,} {what}" for what, count in counts.items())

    def read(self, progress: Callable[[int, int, str], None] = lambda done, of, text: None) -> Iterator[Passage]:
        """Yield the passages in order. `progress` is called with the number of files read, their total, and the number
        of passages in words."""
        seen, count = TextSet(), 0
        conflicting: set[str] = set()  # unchanged files with a document whose id now belongs to another one
        for number, (file, digest) in enumerate(self._files):
            source, report, size = Source(file=file.id, sha256=digest), ReadReport(), _size(file.path)
            self.sources.files.append(source)
            kept = self._before if file.id not in conflicting else None
            if kept and (earlier := kept.unchanged(source)):
                report, passages = earlier.report(file.path), kept.passages(file.id)
            else:
                passages = self._read(file, seen, conflicting, report)
            for passage in passages:
                if not count % _TOLD:
                    share = f", {report.position / size:.0%} of {file.id}" if report.position else ""
                    progress(number, len(self._files), f"{counted(count, 'passage')}{share}")
                count += 1
                source.passages += 1
                source.words += count_words(passage.own_text)
                seen.add(passage.document_id)
                yield passage
            _record(source, report)
            self._report.add(report)
            progress(number + 1, len(self._files), counted(count, "passage"))
        check_read(self._corpus, self._report)

    def _read(self, file: CorpusFile, seen: TextSet, conflicting: set[str], report: ReadReport) -> Iterator[Passage]:
        for document in read_documents(file, seen, report, self._how):
            if self._before and (holder := self._before.file_with(document.id)) not in (None, file.id):
                conflicting.add(str(holder))
            yield from split_document(document, max_words=self.sources.max_words)


def _record(source: Source, report: ReadReport) -> None:
    source.read, source.is_passing = report.read, report.is_passing
    source.reasons, source.guesses = dict(report.skipped.counts), dict(report.guessed.counts)
    source.skipped = [(note.line, note.text) for note in report.skipped]
    source.warnings, source.guessed = [note.text for note in report.warnings], [note.text for note in report.guessed]


def _digest(file: CorpusFile) -> str:
    """Return the checksum of a file before reading: if it changes meanwhile, the next update reads it again."""
    try:
        with open_regular(file.path, file.within) as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except (DataError, OSError):
        return ""


def _size(path: Path) -> int:
    """Return the size of a file in bytes, at least 1."""
    try:
        return max(path.stat().st_size, 1)
    except OSError:
        return 1


def _reader() -> str:
    return " ".join((*(f"{name} {_version(name)}" for name in _READERS), f"formats {_FORMATS}"))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"
