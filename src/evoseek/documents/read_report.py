"""Reports what happened to every file and line while a corpus was read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path

_MINOR_TYPES = """
    .png .jpg .jpeg .gif .svg .webp .bmp .ico .tif .tiff .heic .avif .psd .ai .eps .raw .cur .icns
    .mp3 .wav .ogg .flac .m4a .aac .mp4 .mov .avi .mkv .webm .m4v .wmv .ttf .otf .woff .woff2 .eot
    .css .scss .less .js .mjs .ts .jsx .tsx .vue .map .py .pyc .pyi .ipynb .c .h .cc .cpp .hpp .cs .java .class .jar .go
    .rs .rb .php .pl .lua .swift .kt .scala .r .m .sh .bat .ps1 .cmd .sql .asm .exe .dll .so .dylib .o .a .obj .lib .bin
    .whl .lock .tmp .bak .swp
"""
_MINOR = frozenset(_MINOR_TYPES.split())
"""Types that nobody misses in an index: pictures, sounds, films, fonts and programs. They are counted last."""

_CONVERT = "convert it to Markdown (`pandoc FILE -o FILE.md`), or name it .txt to read it as it is"
_REMEDIES = {
    ".rst": _CONVERT,
    ".org": _CONVERT,
    ".mbox": "save each message as a file .eml",
    ".gz": "unpack it (`gunzip FILE`)",
}

MAX_KEPT = 1_000  # a corpus of ten million broken lines must not fill the memory with their names
MAX_ALIKE = 100  # of one kind, to leave room for other kinds


@dataclass(frozen=True, slots=True)
class Note:
    """A file, folder or line with a text about it: a fixed phrase, then perhaps a colon and the details."""

    path: Path
    text: str
    line: int | None = None

    @property
    def kind(self) -> str:
        """The fixed phrase."""
        return self.text.partition(":")[0]

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line is not None else str(self.path)
        return f"{place}: {self.text}"


class Notes(list[Note]):
    """The first 100 notes of each kind, 1,000 in all; `counts` counts all of them by kind."""

    def __init__(self, notes: Iterable[Note] = (), counts: Mapping[str, int] | None = None) -> None:
        super().__init__(notes)
        self.counts = Counter(note.kind for note in self) if counts is None else Counter(counts)

    def add(self, path: Path, text: str, line: int | None = None) -> None:
        self.merge(Notes([Note(path, text, line)]))

    def merge(self, other: Notes) -> None:
        alike = self.counts.copy() if other else self.counts
        for note in other:
            if alike[note.kind] < MAX_ALIKE and len(self) < MAX_KEPT:
                self.append(note)
            alike[note.kind] += 1
        self.counts.update(other.counts)

    def lines(self, rows: int) -> Iterator[str]:
        """Yield about `rows` notes: the first ones of each kind, the most frequent kind first, and the number of
        others."""
        kinds = sorted(self.counts, key=lambda kind: (-self.counts[kind], kind))[:rows]
        for kind in kinds:
            shown = [note for note in self if note.kind == kind][: max(1, rows // len(kinds))]
            yield from map(str, shown)
            if (more := self.counts[kind] - len(shown)) > 0:
                yield f"... and {more:,} more: {kind}"
        if rest := self.counts.total() - sum(self.counts[kind] for kind in kinds):
            yield f"... and {rest:,} more of other kinds"


@dataclass(slots=True)
class ReadReport:
    """A report that is filled while a corpus is read: the number of documents, skipped files with reasons, guessed
    encodings, warnings of libraries, and the number of files without a reader, by suffix. Documents and archives among
    these may be missed; pictures and programs are not. If the reason for skipping is temporary (`is_passing`), such as
    a busy machine, try again."""

    read: int = 0
    skipped: Notes = field(default_factory=Notes)
    guessed: Notes = field(default_factory=Notes)
    warnings: Notes = field(default_factory=Notes)
    other_types: Counter[str] = field(default_factory=Counter[str])
    missed: Notes = field(default_factory=Notes)
    is_passing: bool = False
    position: int = 0  # bytes read so far of the current file of lines

    @property
    def skipped_count(self) -> int:
        return self.skipped.counts.total()

    def add(self, other: ReadReport) -> None:
        self.read += other.read
        self.skipped.merge(other.skipped)
        self.guessed.merge(other.guessed)
        self.warnings.merge(other.warnings)
        self.other_types.update(other.other_types)
        self.missed.merge(other.missed)

    def add_other(self, path: Path, suffix: str) -> None:
        """Count a file without a reader."""
        kind = suffix or "no suffix"
        self.other_types[kind] += 1
        if suffix not in _MINOR:
            remedy = f": {_REMEDIES[suffix]}" if suffix in _REMEDIES else ""
            self.missed.add(path, f"{kind}: there is no reader for this type{remedy}")

    def missed_table(self) -> str:
        """Return the first files of other types that may be missed, one a line; "" if there are none."""
        count = self.missed.counts.total()
        what = f"{counted(count, 'file')} of other types {'was' if count == 1 else 'were'} not read:"
        return "\n".join([what, *self.missed.lines(10)]) if count else ""

    def warnings_table(self) -> str:
        """Return the first warnings with their files, one a line; "" if there are none."""
        count = self.warnings.counts.total()
        what = f"{counted(count, 'warning')} about files that were read:"
        return "\n".join([what, *self.warnings.lines(10)]) if count else ""

    def guessed_table(self) -> str:
        """Return the guessed encodings, the first files one a line, and what to do about them; "" if there are none."""
        count = self.guessed.counts.total()
        files = "1 file that is" if count == 1 else f"{count:,} files that are"
        lines = [
            f"The encoding of {files} not UTF-8 was guessed{_counts(self.guessed.counts)}:",
            *self.guessed.lines(10),
            "A guess may be wrong, most of all for a short file: the text is then garbled. Convert these files to "
            "UTF-8, or name their encoding (--encoding).",
        ]
        return "\n".join(lines) if count else ""

    def summary(self) -> str:
        text = f"{counted(self.read, 'document')} read, {self.skipped_count:,} skipped{_counts(self.skipped.counts)}"
        if total := self.other_types.total():
            text += f", {counted(total, 'file')} of other types{_counts(self.other_types, last=_MINOR)}"
        return text

    def table(self, rows: int = 20) -> str:
        """Return the first skipped files and lines, one a line, with the reason."""
        return "\n".join(self.skipped.lines(rows))


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 file`, `2 files`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _counts(counter: Counter[str], last: Set[str] = frozenset()) -> str:
    """Return ` (3 empty, 1 binary)`, most frequent first, the `last` ones at the end; "" for an empty counter."""
    ordered = sorted(counter.items(), key=lambda item: (item[0] in last, -item[1], item[0]))
    shown = [f"{count:,} {name}" for name, count in ordered[:6]]
    if len(ordered) > len(shown):
        shown.append(counted(sum(count for _, count in ordered[6:]), "other"))
    return f" ({', '.join(shown)})" if shown else ""
