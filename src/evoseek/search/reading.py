"""What an index was built from: a table by type of file, what was skipped and why, and a JSON file with every file."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from evoseek.documents.documents import CorpusFile
from evoseek.documents.read_report import Note, ReadReport
from evoseek.search.sources import Source, Sources
from evoseek.storage.files import expanded, write_atomic
from evoseek.text.decoding import LINK_OUT
from evoseek.text.printable import say

_COUNTS = ("files", "documents", "passages", "words", "skipped")


def report_reading(sources: Sources, report: ReadReport, console: Console, file: Path | None = None) -> None:
    """Print the report, and write all of it as JSON to `file`. Raises RunError if that cannot be written."""
    say(console, report.summary())
    console.print(types_table(sources, report.skipped_count))
    if missed := report.missed_table():
        say(console, missed)
    if report.skipped_count:
        say(console, report.table())
    for table in (report.guessed_table(), report.warnings_table()):
        if table:
            say(console, table)
    if file:
        write_atomic(expanded(file), json.dumps(as_json(sources, report), ensure_ascii=False, indent=1) + "\n")
        say(console, f"Report of all files: {file}")


def types_table(sources: Sources, skipped: int) -> Table:
    """A row for each type of file, one for what else was skipped (folders, links), and their sum."""
    types = _by_type(sources)
    if elsewhere := skipped - sum(counts["skipped"] for counts in types.values()):
        types["folders and links"] = Counter(skipped=elsewhere)
    table = Table("type", box=None, pad_edge=False)
    for name in _COUNTS:
        table.add_column(name, justify="right")
    rows = types | ({"all": sum(types.values(), Counter[str]())} if len(types) > 1 else {})
    for name, counts in rows.items():
        table.add_row(name, *(f"{counts[count]:,}" for count in _COUNTS))
    return table


def as_json(sources: Sources, report: ReadReport) -> Mapping[str, object]:
    """The report as JSON values: the counts by type of file, the reasons why something was skipped with their counts,
    each folder and link that was skipped, each file of another type that may be missed, and each file that was read or
    skipped, with what was read from it."""
    return {
        "corpus": sources.corpus,
        "types": {name: {count: counts[count] for count in _COUNTS} for name, counts in _by_type(sources).items()},
        "skipped": dict(report.skipped.counts.most_common()),
        "guessed_encodings": dict(report.guessed.counts.most_common()),
        "warnings": dict(report.warnings.counts.most_common()),
        "other_types": dict(report.other_types.most_common()),
        "other_files": [{"file": str(note.path), "type": note.kind} for note in report.missed],
        "folders": [{"folder": str(note.path), "reason": note.text} for note in report.skipped if _is_no_file(note)],
        "files": [_file(source) for source in sources.files],
    }


def _is_no_file(note: Note) -> bool:
    """Whether it is about a folder, a link that was not followed, or a path that is too long."""
    return note.text == LINK_OUT or os.path.isdir(note.path) or not os.path.lexists(note.path)


def _file(source: Source) -> Mapping[str, object]:
    found: dict[str, object] = {"file": source.file, "type": _type(source), **_counts(source)}
    del found["files"]
    lists = {
        "skipped_for": [{"line": line, "reason": reason} for line, reason in source.skipped],
        "guessed_encodings": source.guessed,
        "warnings": source.warnings,
    }
    return found | {name: values for name, values in lists.items() if values}


def _by_type(sources: Sources) -> dict[str, Counter[str]]:
    """The counts for each type of file, that with the most passages first."""
    types: dict[str, Counter[str]] = {}
    for source in sources.files:
        types.setdefault(_type(source), Counter()).update(_counts(source))
    return dict(sorted(types.items(), key=lambda item: (-item[1]["passages"], item[0])))


def _counts(source: Source) -> dict[str, int]:
    skipped = sum(source.reasons.values())
    return dict(zip(_COUNTS, (1, source.read, source.passages, source.words, skipped), strict=True))


def _type(source: Source) -> str:
    return CorpusFile(Path(source.file), source.file).suffix
