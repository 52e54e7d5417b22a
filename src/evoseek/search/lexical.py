"""Lexical search: BM25 over passages, on tantivy, memory-mapped from disk."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from functools import partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any, ParamSpec, Self, TypedDict, TypeVar, Unpack, cast

import numpy as np
import tantivy

from evoseek.errors import ConfigError, DataError, SearchIndexError, disk_text, is_of_disk
from evoseek.search.analyser import Analyser
from evoseek.search.calling import distinct
from evoseek.search.manifest import (
    REMEDY,
    AnalyserRecord,
    Manifest,
    VectorsRecord,
    change,
    install,
    linked,
    opened,
    record_file,
)
from evoseek.search.settings import BuiltEngine, IndexSettings, SearchSettings
from evoseek.storage.files import json_digest
from evoseek.text.duplicates import TextSet
from evoseek.types import Passage

MAX_QUERY_TERMS = 1_024  # maximum number of different terms of a query; later ones are ignored
MAX_TIED = 1_000  # passages of equal score that are sorted; see LexicalIndex
TITLE_BOOST = 0.5  # additional weight of a word in the title, which is part of the contents, too
SOURCES = "sources.json"  # the record of the passages' files (`search.sources`)
_SCORE_DIGITS = 4  # tantivy adds 32-bit scores in no fixed order: the same sum differs in the last bits
_WRITER_BYTES = 128_000_000
_PAGE = 100_000  # passages whose orders are looked up together
_SAVE_S = 60.0  # seconds between two commits of the passages so far
_P = ParamSpec("_P")
_R = TypeVar("_R")


Spans = tuple[tuple[int, int], ...]
"""Places of passages, in order: from each first number up to, but without, the second one."""
Embed = Callable[[Path, Iterator[Passage], int, str], VectorsRecord]
"""Writes the vectors of an index's passages, given their number and their checksum, into its data folder.
Returns the record for the manifest."""


class BuildOptions(TypedDict, total=False):
    """Options of a build. `max_words` is recorded, and so is the result of `sources`, called after the last passage,
    about the passages' files. `key` identifies the passages: an interrupted build with the same key is resumed, and
    then reads the passages from the first again."""

    analyser: Analyser
    max_words: int | None
    sources: Callable[[], str] | None
    key: str | None


class Lexical:
    """Searches the index `search.index` by terms, ranked by BM25."""

    Settings = IndexSettings

    @classmethod
    def build(cls, settings: IndexSettings, context: object) -> LexicalIndex:
        return open_index(settings.index, setting="search.index")


class LexicalIndex:
    """An index in its own folder: BM25 (k1 = 1.2, b = 0.75) of title, heading and text, plus half the BM25 of the
    title.

    The same index gives the same passages for the same query: scores are rounded to four decimals, and equal ones are
    in the order in which the passages were added (among the first 1,000). Searching runs where it is awaited, without
    threads.
    """

    is_local = True

    def __init__(self, directory: Path, manifest: Manifest) -> None:
        self.directory, self.manifest = directory, manifest
        self.analyser = Analyser(manifest.analyser.stemming, manifest.analyser.version)
        self._searcher, self._segments = _searcher_of(directory, manifest)
        self._spans: Spans | None = None  # None: all passages

    @classmethod
    def build(cls, directory: Path, passages: Iterable[Passage], **options: Unpack[BuildOptions]) -> Self:
        """Build from a stream of passages, replacing an existing index.

        Memory holds digests of the ids (about 25 bytes a passage) and a buffer of 128 MB, never the texts. DataError
        for a repeated id, SearchIndexError if the folder cannot be used; an earlier index is then unchanged.
        """
        return cls(directory, write_index(directory, passages, **options))

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Open for searching. SearchIndexError if there is no index, or it is damaged or of another version."""
        return opened(directory, partial(cls._checked, directory))

    @classmethod
    def _checked(cls, directory: Path, manifest: Manifest) -> Self:
        manifest.check_files(directory)
        return cls(directory, manifest)

    def within(self, spans: Spans) -> Self:
        """Return the index of only the passages at these places: no other is found, counted, listed or given by id.
        Words weigh as in the whole index, and both share one searcher."""
        part = copy(self)
        part._spans = spans
        return part

    def __len__(self) -> int:
        return self.manifest.passages if self._spans is None else sum(end - start for start, end in self._spans)

    def get(self, passage_id: str) -> Passage:
        """Return the passage with this id. DataError if there is none."""
        return from_stored(self._searcher.doc(self._address(passage_id)))

    def around(self, passage_id: str, count: int) -> list[Passage]:
        """Return the passage with this id and up to `count` before and after it, in the order in which they were added.
        DataError if there is none."""
        (place,) = _orders_at(self._searcher, [self._address(passage_id)])
        number, first = tantivy.FieldType.Unsigned, max(0, place - count)
        near = self._here(tantivy.Query.range_query(SCHEMA, "order", number, first, place + count))
        addresses = [address for _, address in self._searcher.search(near, 2 * count + 1, count=False).hits]
        found = zip(_orders_at(self._searcher, addresses), addresses, strict=True)
        return [from_stored(self._searcher.doc(address)) for _, address in sorted(found, key=lambda one: one[0])]

    def _address(self, passage_id: str) -> tantivy.DocAddress:
        address = self._first("id", passage_id)
        if address is None:
            raise DataError(
                f"The search index in {self.directory} has no passage {passage_id!r}.", code="index.no_passage"
            )
        return address

    def place_of(self, document_id: str) -> int | None:
        """Return the place at which a passage of this document was added; None without one."""
        address = self._first("document_id", document_id)
        return None if address is None else _orders_at(self._searcher, [address])[0]

    def passages_with(self, word: str) -> int:
        """Return the number of passages that contain a word; if it has several terms, the number for the rarest."""
        return min(map(self._passages_with, self.analyser.terms(word)), default=0)

    def _passages_with(self, term: str) -> int:
        if self._spans is None:
            return self._searcher.doc_freq("text_terms", term)
        found: Any = self._searcher.search(self._here(tantivy.Query.term_query(SCHEMA, "text_terms", term, "basic")), 1)
        return found.count

    def passages(self) -> Iterator[Passage]:
        """Yield every passage, in the order in which they were added."""
        return _in_order(self._searcher, self._segments, self._spans)

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return, for each query, at most k passages with different texts, best first, each with its score. Any text is
        a query; a text without terms finds nothing."""
        return self.find_all(queries, k)

    def find(self, query: str, k: int) -> list[Passage]:
        return self.find_all([query], k)[0]

    def find_all(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Search as `search`, without awaiting."""
        return [distinct(partial(self.ranked, query), k) for query in queries]

    def ranked(self, query: str, k: int) -> list[Passage]:
        """Return the k best passages by terms, including equal texts."""
        return [from_stored(self._searcher.doc(address), score) for score, _, address in self._ranked(query, k)]

    def rank(self, query: str, k: int) -> dict[int, float]:
        """Return the places in `passages` of the best ones by terms, best first, with their scores. No text is read."""
        return {order: score for score, order, _ in self._ranked(query, k)}

    def _ranked(self, text: str, k: int) -> list[tuple[float, int, tantivy.DocAddress]]:
        """Return score, order and address of the k best, equal scores in order of adding. So all that tie with the last
        one must be inspected."""
        terms = list(dict.fromkeys(self.analyser.terms(text)))[:MAX_QUERY_TERMS]
        k = min(k, len(self))
        if not terms or k < 1:
            return []
        query, limit = self._here(_terms_query(terms, self.manifest.title_boost)), k + 8
        while True:
            found = self._searcher.search(query, limit, count=False).hits
            hits = [(round(score, _SCORE_DIGITS), address) for score, address in found]
            if len(hits) < limit or hits[-1][0] < hits[k - 1][0] or limit >= k + MAX_TIED:
                break
            limit = min(limit * 4, k + MAX_TIED)
        orders = _orders_at(self._searcher, [address for _, address in hits])
        ranks = sorted(
            (-score, order, index) for index, ((score, _), order) in enumerate(zip(hits, orders, strict=True))
        )
        return [(-score, order, hits[index][1]) for score, order, index in ranks[:k]]

    def _first(self, field: str, value: str) -> tantivy.DocAddress | None:
        try:
            query = tantivy.Query.term_query(SCHEMA, field, value, "basic")
        except ValueError:  # not encodable, so no passage has it
            return None
        hits = self._searcher.search(self._here(query), 1, count=False).hits
        return hits[0][1] if hits else None

    def _here(self, query: tantivy.Query) -> tantivy.Query:
        """Return the query, for only the passages of this index if it is a part of another one."""
        if self._spans is None:
            return query
        number = tantivy.FieldType.Unsigned
        ranges = [
            (tantivy.Occur.Should, tantivy.Query.range_query(SCHEMA, "order", number, start, end, include_upper=False))
            for start, end in self._spans
        ]
        place = tantivy.Query.const_score_query(tantivy.Query.boolean_query(ranges), 0.0)
        return tantivy.Query.boolean_query([(tantivy.Occur.Must, query), (tantivy.Occur.Must, place)])


def write_index(
    directory: Path,
    passages: Iterable[Passage],
    *,
    engine: BuiltEngine = "lexical",
    embed: Embed | None = None,
    **options: Unpack[BuildOptions],
) -> Manifest:
    """Write an index as `LexicalIndex.build`, with vectors if `embed` makes them."""
    analyser, key, sources = options.get("analyser", Analyser()), options.get("key"), options.get("sources")
    record = AnalyserRecord(version=analyser.version, stemming=analyser.stemming)
    with change(directory, key and json_digest([key, version("tantivy"), record.model_dump()])[:16]) as data:
        index = _on_disk(tantivy.Index, SCHEMA, str(data))
        count, documents, content = _write(index, passages, analyser)
        if sources is not None:
            (data / SOURCES).write_text(sources(), encoding="utf-8")
        vectors = None
        if embed is not None:
            written = _in_order(tantivy.Index.open(str(data)).searcher(), _segments(data))
            vectors = embed(data, written, count, content)
        manifest = Manifest(
            tantivy=version("tantivy"),
            analyser=record,
            title_boost=TITLE_BOOST,
            max_words=options.get("max_words"),
            engine=engine,
            vectors=vectors,
            documents=documents,
            passages=count,
            content=content,
            data=f"data-{secrets.token_hex(8)}",
            files={path.name: record_file(path) for path in sorted(data.iterdir()) if path.suffix != ".lock"},
        )
        install(data, manifest)
    return manifest


def _write(index: tantivy.Index, passages: Iterable[Passage], analyser: Analyser) -> tuple[int, int, str]:
    """Add passages. Return the numbers of passages and documents, and the checksum of the passages. It does not include
    citations, which no search and no policy sees.

    One thread writes, so that the order of passages is kept: passages left by an interrupted build are the first ones.
    After success or failure, nothing is written any more."""
    ids, documents, digest, last_id = TextSet(), TextSet(), hashlib.sha256(), ""
    before, saved = index.searcher(), time.monotonic()
    writer = _on_disk(index.writer, _WRITER_BYTES, num_threads=1)
    try:
        for order, passage in enumerate(passages):
            if not ids.add(passage.id):
                raise DataError(
                    f"The passage id {passage.id!r} comes twice. Give every passage its own id.",
                    code="index.passage_twice",
                )
            documents.add(passage.document_id)
            row = [passage.id, passage.document_id, passage.title, passage.text, passage.start, passage.end]
            digest.update(json.dumps(row).encode() + b"\n")
            if order < before.num_docs:
                last_id = passage.id
                continue
            _on_disk(writer.add_document, to_stored(passage, order, analyser))
            if time.monotonic() - saved >= _SAVE_S:
                _on_disk(writer.commit)
                saved = time.monotonic()
        _check_resumed(before, len(ids), last_id)
        _on_disk(writer.commit)
    finally:
        _on_disk(writer.wait_merging_threads)
    return len(ids), len(documents), digest.hexdigest()


def _check_resumed(before: tantivy.Searcher, count: int, last_id: str) -> None:
    """Raise SearchIndexError unless the passages left by an interrupted build are the first of these."""
    if not before.num_docs:
        return
    query = tantivy.Query.term_query(SCHEMA, "id", last_id, "basic")
    addresses = [address for _, address in before.search(query, 1, count=False).hits]
    if count < before.num_docs or _orders_at(before, addresses) != [before.num_docs - 1]:
        raise SearchIndexError(
            f"The build that was interrupted left {before.num_docs:,} passages that are not the first ones that were "
            "read now, although the files are the same. They were removed: the same command starts from the beginning.",
            code="index.changed_meanwhile",
        )


def _on_disk(operation: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """Run a writing operation of tantivy. Its ValueError for a failing disk becomes an OSError."""
    try:
        return operation(*args, **kwargs)
    except ValueError as error:
        raise OSError(str(error)) from error


def _searcher_of(directory: Path, manifest: Manifest) -> tuple[tantivy.Searcher, list[int]]:
    """Return the searcher of an index, and the numbers of passages in its segments."""
    try:
        with linked(directory / manifest.data) as data:
            searcher, segments = tantivy.Index.open(str(data)).searcher(), _segments(data)
    except (ValueError, OSError) as error:
        if is_of_disk(error):
            raise SearchIndexError(
                disk_text(error, f"The search index in {directory} cannot be opened"), code="disk.failed"
            ) from error
        raise SearchIndexError(
            f"The search index in {directory} cannot be opened: {error}. It was written by tantivy {manifest.tantivy}, "
            f"this is {version('tantivy')}. {REMEDY}",
            code="index.unreadable",
        ) from error
    if searcher.num_docs != manifest.passages:
        raise SearchIndexError(
            f"The search index in {directory} holds {searcher.num_docs:,} passages where its manifest says "
            f"{manifest.passages:,}. {REMEDY}",
            code="index.other_count",
        )
    return searcher, segments


def _segments(data: Path) -> list[int]:
    """Return the numbers of passages in the segments of an index, in tantivy's order of segments."""
    return [segment["max_doc"] for segment in json.loads((data / "meta.json").read_bytes())["segments"]]


def _in_order(searcher: tantivy.Searcher, segments: Sequence[int], spans: Spans | None = None) -> Iterator[Passage]:
    """Yield all passages, or those in the spans, by their orders. It holds eight bytes for each: searching for the next
    ones would scan all orders every time."""
    places = np.empty(sum(segments), np.int64)  # by order: the number of the segment, and the place in it
    for number, count in enumerate(segments):
        for first in range(0, count, _PAGE):
            docs = range(first, min(first + _PAGE, count))
            orders = _orders_at(searcher, [tantivy.DocAddress(number, doc) for doc in docs])
            places[orders] = np.arange(docs.start, docs.stop) + (number << 32)
    for place in places if spans is None else chain.from_iterable(places[start:end] for start, end in spans):
        yield from_stored(searcher.doc(tantivy.DocAddress(int(place >> 32), int(place & 0xFFFFFFFF))))


def _orders_at(searcher: tantivy.Searcher, addresses: list[tantivy.DocAddress]) -> list[int]:
    """Return the orders of some passages: every passage has one, a whole number."""
    return cast("list[int]", searcher.fast_field_values("order", addresses))


def _terms_query(terms: list[str], title_boost: float) -> tantivy.Query:
    """Return a query for passages with any of the terms, scored by BM25 of the contents (title, heading and text) plus
    `title_boost` times BM25 of the title."""
    clauses: list[tuple[tantivy.Occur, tantivy.Query]] = []
    for term in terms:
        clauses.append((tantivy.Occur.Should, tantivy.Query.term_query(SCHEMA, "text_terms", term, "freq")))
        if title_boost > 0:
            in_title = tantivy.Query.term_query(SCHEMA, "title_terms", term, "freq")
            clauses.append((tantivy.Occur.Should, tantivy.Query.boost_query(in_title, title_boost)))
    return tantivy.Query.boolean_query(clauses)


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    for name in ("id", "document_id"):
        builder.add_text_field(name, stored=True, tokenizer_name="raw", index_option="basic")
    for name in ("title", "text"):
        builder.add_bytes_field(name, stored=True)
    for name in ("start", "end"):
        builder.add_unsigned_field(name, stored=True)
    builder.add_unsigned_field("order", fast=True)  # place among all passages
    # The terms come from our own analyser: tantivy only splits them at white space and counts them (no positions).
    for name in ("title_terms", "text_terms"):
        builder.add_text_field(name, tokenizer_name="whitespace", index_option="freq")
    # After the other fields, whose numbers stay the same as in indexes from before there were citations.
    for name in ("file", "heading"):
        builder.add_bytes_field(name, stored=True)
    builder.add_unsigned_field("page", stored=True)
    return builder.build()


SCHEMA = _schema()


def to_stored(passage: Passage, order: int, analyser: Analyser) -> tantivy.Document:
    """Convert a passage to a tantivy document. DataError for text that cannot be encoded, or offsets below zero."""
    document = tantivy.Document()
    try:
        document.add_text("id", passage.id)
        document.add_text("document_id", passage.document_id)
        for name in ("title", "text", "file", "heading"):
            if (text := getattr(passage, name)) is not None:
                document.add_bytes(name, text.encode())
        for name in ("start", "end", "page"):
            if (number := getattr(passage, name)) is not None:
                document.add_unsigned(name, number)
    except (UnicodeEncodeError, OverflowError) as error:
        raise DataError(
            f"The passage {passage.id!r} cannot be indexed: {error}. Texts must be proper Unicode (no lone surrogates) "
            "and offsets at least 0.",
            code="index.passage_invalid",
        ) from error
    document.add_unsigned("order", order)
    document.add_text("title_terms", " ".join(analyser.terms(passage.title)))
    document.add_text("text_terms", " ".join(analyser.terms(passage.contents)))
    return document


def from_stored(document: tantivy.Document, score: float | None = None) -> Passage:
    """Convert a tantivy document back to its passage, with its score in the search."""
    stored: dict[str, list[Any]] = document.to_dict()
    fields: dict[str, Any] = {
        name: value.decode() if isinstance(value, bytes) else value for name, (value, *_) in stored.items()
    }
    return Passage(**fields, score=score)


def open_index(directory: str, *, setting: str) -> LexicalIndex:
    """Open an index to search by terms. Raises ConfigError if `setting` was left empty, SearchIndexError if the index
    cannot be used."""
    return LexicalIndex.open(index_directory(directory, setting=setting))


def check_index(directory: str, *, setting: str, engine: SearchSettings | None = None) -> None:
    """Check that an engine can search an index, without reading its contents. Raises the same errors as opening it."""
    path = index_directory(directory, setting=setting)
    manifest = Manifest.read(path)
    if engine is not None and engine.needs_vectors:
        manifest.vectors_for(engine.name, path)


def index_directory(directory: str, *, setting: str) -> Path:
    """Return the directory of an index. Raises ConfigError if `setting` was left empty."""
    if not directory:
        raise ConfigError(
            f"No index was given: set {setting} to a directory that `evoseek index` made.", code="index.not_given"
        )
    return Path(directory)
