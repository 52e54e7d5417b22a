"""Indexes a corpus: reads it, cuts it into passages, builds the index, updates it. The report has a table by type of
file, skipped files with reasons, and a JSON file with every file."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Literal

from rich.console import Console
from rich.table import Table

from evoseek.documents.documents import CorpusFile
from evoseek.documents.parsing import MAX_SECONDS, MAX_TEXT, Reading
from evoseek.documents.read_report import Note, ReadReport, counted
from evoseek.errors import ConfigError, EvoseekError, SearchIndexError
from evoseek.search.analyser import ANALYSER_VERSION, Analyser
from evoseek.search.dense import DenseIndex
from evoseek.search.encoders import Embedder, encoder_of, make_encoder
from evoseek.search.lexical import BuildOptions, LexicalIndex
from evoseek.search.settings import BuiltEngine
from evoseek.search.sources import CorpusPassages, Recorded, Source, Sources
from evoseek.search.vectors import MadeVectors
from evoseek.storage.files import expanded, write_atomic
from evoseek.text.decoding import LINK_OUT
from evoseek.text.printable import say
from evoseek.text.progress import CountProgress
from evoseek.types import Passage

DEBOUNCE_MS = 1_000  # milliseconds within which consecutive changes are one update


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """Settings for building an index. A passage has at most `max_words` words, a document at most `max_text`
    characters; reading a file takes at most `max_seconds` of processor time. `encoding` is the encoding of files that
    are not UTF-8; by default it is detected. With `follow_links`, links out of the corpus are followed.

    The other settings are for dense and hybrid indexes: `encoder` names an encoder or a sentence-transformers model,
    `device` is where it runs, and `dtype` the number type of the stored vectors. None selects the default.
    """

    engine: BuiltEngine = "lexical"
    stemming: Literal["none", "english"] = "none"
    max_words: int = 100
    encoding: str | None = None
    max_text: int = MAX_TEXT
    max_seconds: int = MAX_SECONDS
    follow_links: bool = False
    encoder: str | None = None
    device: str | None = None
    dtype: Literal["float32", "float16"] | None = None

    @property
    def reading(self) -> Reading:
        return Reading(self.max_text, self.max_seconds, self.encoding, self.follow_links)

    def make_encoder(self) -> Embedder | None:
        """Return the encoder, if the engine has one. Raises ConfigError for an unavailable one, and for options without
        effect."""
        if self.engine != "lexical":
            return make_encoder(self.encoder or "static", device=self.device)
        if given := [f"--{name}" for name in ("encoder", "device", "dtype") if getattr(self, name) is not None]:
            raise ConfigError(
                f"{given[0]} has no effect on an index that is searched by terms alone. Add --engine hybrid or "
                f"--engine dense, or leave out {given[0]}."
            )
        return None


def build_index(
    corpus: Path | str,
    directory: Path | str,
    plan: IndexPlan | None = None,
    *,
    console: Console | None = None,
    report_file: Path | None = None,
) -> None:
    """Read a folder of documents, or one file, cut it into passages, and index them in a directory, in place of an
    index that is there. Report what was read, what was skipped and which encodings were guessed, on the console and as
    JSON in `report_file`. A build that was interrupted is resumed. Raises EvoseekError."""
    corpus, directory, plan, console = Path(corpus), Path(directory), plan or IndexPlan(), console or Console()
    check_apart(corpus, directory, report_file)
    encoder, report = plan.make_encoder(), ReadReport()
    passages = CorpusPassages(corpus, report=report, how=plan.reading, max_words=plan.max_words)
    count = _build(directory, passages, plan, encoder, None, console)
    report_reading(passages.sources, report, console, report_file)
    _say_indexed(console, count, plan.max_words, directory)


def update_index(
    corpus: Path,
    directory: Path,
    *,
    device: str | None,
    console: Console,
    of_project: Mapping[str, object] | None = None,
    report_file: Path | None = None,
) -> None:
    """Bring an index to the state of a new build from the corpus, with its own settings. Only new and changed files are
    read, only new passages are embedded. `of_project` are the project's settings of `IndexPlan`: a notice names each
    that differs from the index. The report is as in `build_index`. Raises EvoseekError; the index is then
    unchanged."""
    check_apart(corpus, directory, report_file)
    before = Recorded(LexicalIndex.open(directory))
    manifest, sources, report = before.index.manifest, before.sources, ReadReport()
    by = manifest.vectors.encoder.settings if manifest.vectors else {}
    plan = IndexPlan(
        engine=manifest.engine or "lexical",
        stemming=manifest.analyser.stemming,
        max_words=sources.max_words,
        encoder=str(by.get("model") or by.get("name")) if by else None,
        dtype=manifest.vectors.dtype if manifest.vectors else None,
    )
    for name, value in (of_project or {}).items():
        if value != (kept := getattr(plan, name)):
            say(
                console,
                f"An update keeps the {name} of the index in {directory}, which is {kept}; the project has {value}. "
                "To have that, build the index again (without --update and --watch).",
            )
    how = Reading(sources.max_text, sources.max_seconds, sources.encoding, sources.follow_links)
    passages = CorpusPassages(corpus, report=report, how=how, max_words=sources.max_words, before=before)
    if passages.is_unchanged and manifest.analyser.version == ANALYSER_VERSION:
        say(console, f"{directory} is up to date: no file of {corpus} has changed.")
        if report_file:
            report_reading(passages.sources, report, console, report_file)
        else:
            say(console, report.summary())
        return
    encoder = encoder_of(manifest.vectors.encoder, directory, device=device or "auto") if manifest.vectors else None
    keeps_vectors = manifest.vectors and not passages.is_read_anew  # of another release, contents may differ
    made = MadeVectors(directory, manifest, before.index.passages()) if keeps_vectors else None
    count = _build(directory, passages, plan, encoder, made, console)
    if passages.is_read_anew:
        say(console, "The programs that read files are of other releases than before, so every file was read again.")
    say(console, passages.changes())
    report_reading(passages.sources, report, console, report_file)
    _say_indexed(console, count, sources.max_words, directory)


def _say_indexed(console: Console, count: int, max_words: int, directory: Path) -> None:
    say(console, f"{counted(count, 'passage')} of at most {counted(max_words, 'word')} indexed in {directory}")


def watch_corpus(corpus: Path, update: Callable[[], None], *, console: Console, stop: Event | None = None) -> None:
    """Update an index now and whenever files of the corpus change, until Ctrl-C or `stop`. A failed update is reported,
    and retried with the next change. Raises EvoseekError if the first update fails or watchfiles is not installed."""
    try:
        from watchfiles import watch
    except ImportError as error:
        raise ConfigError(
            "--watch needs watchfiles, which is not installed. Install it: pip install 'evoseek[watch]'."
        ) from error
    if not corpus.exists():  # the watcher's own error is less clear
        update()
    is_first = True
    for changed in watch(
        corpus,
        watch_filter=None,
        debounce=DEBOUNCE_MS,
        stop_event=stop,
        rust_timeout=DEBOUNCE_MS,
        yield_on_timeout=True,  # so that changes during the first update are already watched
        raise_interrupt=False,
    ):
        if not changed and not is_first:
            continue
        try:
            update()
        except EvoseekError as error:
            if is_first:
                raise
            say(console, f"The index is as it was: {error}")
        if is_first:
            say(console, f"Watching {corpus}   (Ctrl-C ends it)")
        is_first = False
    say(console, "Ended.")


def _build(
    directory: Path,
    passages: CorpusPassages,
    plan: IndexPlan,
    encoder: Embedder | None,
    made: MadeVectors | None,
    console: Console,
) -> int:
    options = BuildOptions(
        analyser=Analyser(plan.stemming),
        max_words=plan.max_words,
        sources=passages.sources.model_dump_json,
        key=passages.key,
    )
    with closing(_counted(passages, console)) as found, CountProgress(console, "passages embedded") as progress:
        if encoder is None:
            return len(LexicalIndex.build(directory, found, **options))
        engine, dtype = ("hybrid" if plan.engine == "hybrid" else "dense"), plan.dtype or "float32"
        return len(
            DenseIndex.build(
                directory, found, encoder, engine=engine, dtype=dtype, progress=progress, made=made, **options
            )
        )


def _counted(passages: CorpusPassages, console: Console) -> Generator[Passage]:
    with CountProgress(console, "files read") as progress:
        yield from passages.read(progress)


def check_apart(corpus: Path, directory: Path, report_file: Path | None) -> None:
    """Raise SearchIndexError for an index or a report that would lie in the corpus."""
    if report_file and report_file.resolve().is_relative_to(corpus.resolve()):
        raise SearchIndexError(
            f"The report {report_file} lies in the corpus {corpus}, and would become a part of it. Give a file "
            "outside it.",
            code="index.report_in_corpus",
        )
    if directory.resolve().is_relative_to(corpus.resolve()):
        raise SearchIndexError(
            f"The index folder {directory} lies in the corpus {corpus}, and would become a part of it. Give a folder "
            "outside the corpus."
        )


_COUNTS = ("files", "documents", "passages", "words", "skipped")


def report_reading(sources: Sources, report: ReadReport, console: Console, file: Path | None = None) -> None:
    """Print the report, and write all of it as JSON to `file`. Raises RunError if the file cannot be written."""
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
    """Make a table with a row for each type of file, one for skipped folders and links, and their sum."""
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
    """Return the report as JSON values: counts by type of file, reasons for skipping with their counts, each skipped
    folder and link, each file of another type that may be missed, and each file that was read or skipped, with its
    documents."""
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
    """Return whether a note is about a folder, a link that was not followed, or a path that is too long."""
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
    """Return the counts for each type of file, most passages first."""
    types: dict[str, Counter[str]] = {}
    for source in sources.files:
        types.setdefault(_type(source), Counter()).update(_counts(source))
    return dict(sorted(types.items(), key=lambda item: (-item[1]["passages"], item[0])))


def _counts(source: Source) -> dict[str, int]:
    skipped = sum(source.reasons.values())
    return dict(zip(_COUNTS, (1, source.read, source.passages, source.words, skipped), strict=True))


def _type(source: Source) -> str:
    return CorpusFile(Path(source.file), source.file).suffix
