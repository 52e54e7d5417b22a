"""What happened to every file and line while a corpus was read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

MAX_KEPT = 1_000  # a corpus of ten million broken lines must not fill the memory with their names


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file, folder or line that was not read. `reason` is a fixed phrase, then perhaps a colon and the details."""

    path: Path
    line: int | None
    reason: str

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line is not None else str(self.path)
        return f"{place}: {self.reason}"


@dataclass(slots=True)
class ReadReport:
    """Filled by `read_corpus`. `skipped` holds the first 1,000; `reasons` counts all of them by fixed phrase;
    `warnings` holds the first 1,000 warnings of the libraries that read files, with the file, and `warned` counts all
    of them; `other_types` counts, by suffix, the files of a folder that no reader is for; `guesses` the files whose
    encoding was guessed, by its name, and `guessed` holds the first 1,000 of them."""

    read: int = 0
    skipped: list[Skipped] = field(default_factory=list[Skipped])
    reasons: Counter[str] = field(default_factory=Counter[str])
    other_types: Counter[str] = field(default_factory=Counter[str])
    guessed: list[tuple[Path, str]] = field(default_factory=list[tuple[Path, str]])
    guesses: Counter[str] = field(default_factory=Counter[str])
    warnings: list[tuple[Path, str]] = field(default_factory=list[tuple[Path, str]])
    warned: int = 0

    @property
    def skipped_count(self) -> int:
        """How many files, folders and lines were skipped."""
        return self.reasons.total()

    def skip(self, path: Path, reason: str, line: int | None = None) -> None:
        """Record that something was skipped, and why."""
        self.reasons[reason.partition(":")[0]] += 1
        if len(self.skipped) < MAX_KEPT:
            self.skipped.append(Skipped(path, line, reason))

    def add(self, other: ReadReport) -> None:
        """Take in the report of a part that was read by itself."""
        self.read += other.read
        self.skipped += other.skipped[: MAX_KEPT - len(self.skipped)]
        self.guessed += other.guessed[: MAX_KEPT - len(self.guessed)]
        self.warnings += other.warnings[: MAX_KEPT - len(self.warnings)]
        self.warned += other.warned
        for own, more in ((self.reasons, other.reasons), (self.guesses, other.guesses)):
            own.update(more)
        self.other_types.update(other.other_types)

    def guess(self, path: Path, encoding: str) -> None:
        """Record that a file's encoding was guessed from its bytes."""
        self.guesses[encoding] += 1
        if len(self.guessed) < MAX_KEPT:
            self.guessed.append((path, encoding))

    def warn(self, path: Path, text: str) -> None:
        """Record a warning of a library about a file that was read."""
        self.warned += 1
        if len(self.warnings) < MAX_KEPT:
            self.warnings.append((path, text))

    def warnings_table(self) -> str:
        """The first warnings with their files, one a line; "" without any."""
        lines = list(_listed(self.warnings, self.warned))
        what = "1 warning" if self.warned == 1 else f"{self.warned:,} warnings"
        return "\n".join([f"{what} about files that were read:", *lines]) if lines else ""

    def guessed_table(self) -> str:
        """What was guessed, the first files one a line, and what to do about it; "" if nothing was."""
        if not self.guessed:
            return ""
        count = self.guesses.total()
        files = "1 file that is" if count == 1 else f"{count:,} files that are"
        lines = [f"The encoding of {files} not UTF-8 was guessed{_counts(self.guesses)}:"]
        lines += _listed(self.guessed, count)
        lines.append(
            "A guess may be wrong, most of all for a short file: the text is then a jumble. Convert these files to "
            "UTF-8, or name their encoding (--encoding)."
        )
        return "\n".join(lines)

    def summary(self) -> str:
        """One line of counts."""
        text = f"{self.read:,} documents read, {self.skipped_count:,} skipped{_counts(self.reasons)}"
        if self.other_types:
            text += f", {self.other_types.total():,} files of other types{_counts(self.other_types)}"
        return text

    def table(self, rows: int = 20) -> str:
        """The first skipped places, one a line, with the reason."""
        lines = [str(skipped) for skipped in self.skipped[:rows]]
        if self.skipped_count > len(lines):
            lines.append(f"... and {self.skipped_count - len(lines):,} more")
        return "\n".join(lines)


def _listed(found: list[tuple[Path, str]], count: int) -> Iterator[str]:
    """The first ten, one a line, and how many more there are."""
    yield from (f"{path}: {text}" for path, text in found[:10])
    if count > 10:
        yield f"... and {count - 10:,} more"


def _counts(counter: Counter[str]) -> str:
    """` (3 empty, 1 binary)`, most frequent first; nothing for an empty counter."""
    ordered = sorted(counter.items(), key=lambda item: (-item[1], item[0]))
    shown = [f"{count:,} {name}" for name, count in ordered[:6]]
    if len(ordered) > len(shown):
        shown.append(f"{sum(count for _, count in ordered[6:]):,} others")
    return f" ({', '.join(shown)})" if shown else ""
