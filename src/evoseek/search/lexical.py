"""Lexical search: BM25 over passages, on tantivy, memory-mapped from disk."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Literal, ParamSpec, Protocol, TypeVar, cast

import tantivy

from evoseek.errors import ConfigError, DataError, SearchIndexError, disk_text, is_of_disk
from evoseek.search.analyser import ANALYSER_VERSION, Analyser
from evoseek.search.generations import change, copy_files, linked
from evoseek.search.manifest import (
    REMEDY,
    AnalyserRecord,
    BM25Record,
    ContentDigest,
    FileRecord,
    Manifest,
    VectorsRecord,
    content_after,
    record_file,
)
from evoseek.search.passage_fields import SCHEMA, exact_query, from_stored, order_query, terms_query, to_stored
from evoseek.search.settings import SearchSettings
from evoseek.types import Passage

MAX_QUERY_TERMS = 256  # different terms of a query that are searched for; later ones are not
MAX_TIED = 1_000  # passages of equal score that are put into order; see LexicalIndex
_SCORE_DIGITS = 4  # tantivy adds 32-bit scores up in no fixed order: the same sum differs in the last bits
_WRITER_BYTES = 128_000_000
SOURCES = "sources.json"  # the record of the files that the passages are from (`search.sources`)
_PAGE = 1_000  # passages fetched at a time when all are listed
_DEFAULT_ANALYSER = Analyser()
_P = ParamSpec("_P")
_R = TypeVar("_R")


class PassageEmbedder(Protocol):
    """Gives passages their vectors (`search.embedding.Embedder`)."""

    def write(self, data: Path, passages: Iterable[Passage], count: int, *, content: str) -> VectorsRecord:
        """Write the vectors of all `count` passages, in their order, into a data folder."""
        ...


class LexicalIndex:
    """An index in a folder of its own: BM25 (k1 = 1.2, b = 0.75), the title counting `title_boost` times.

    The same index gives the same passages for the same query: scores are rounded to four decimals and equal ones are
    put in the order in which the passages were added (among the first 1,000 of them). Searching runs where it is
    awaited, without threads.
    """

    is_local = True

    def __init__(self, directory: Path, manifest: Manifest) -> None:
        """Use `build` or `open`."""
        self.directory = directory
        self._load(manifest)

    @classmethod
    def build(
        cls,
        directory: Path,
        passages: Iterable[Passage],
        *,
        analyser: Analyser = _DEFAULT_ANALYSER,
        title_boost: float = 2.0,
        max_words: int | None = None,
        engine: Literal["lexical", "dense", "hybrid"] = "lexical",
        embedder: PassageEmbedder | None = None,
        sources: Callable[[], str] | None = None,
    ) -> LexicalIndex:
        """Build from a stream of passages, taking the place of an index that is there. With an `embedder` the passages
        also get vectors. `max_words` and `engine` are recorded, and what `sources` says, after the last passage, of the
        files that they are from.

        Holds the ids (up to 200 bytes a passage) and a buffer of 128 MB, never the texts. DataError for an id that
        comes twice, SearchIndexError if the folder cannot be used; what was there before is then unchanged.
        """
        if not 0 <= title_boost < float("inf"):
            raise ConfigError(f"The title boost must be a number from 0, got {title_boost}. A usual value is 2.")
        with change(directory) as data:
            digest = ContentDigest()
            count, documents = _write(_new_index(data), digest.watch(passages), analyser)
            manifest = Manifest(
                tantivy=version("tantivy"),
                analyser=AnalyserRecord(version=ANALYSER_VERSION, stemming=analyser.stemming),
                title_boost=title_boost,
                bm25=BM25Record(),
                max_words=max_words,
                engine=engine,
                documents=len(documents),
                passages=count,
                next_order=count,
                content=digest.hexdigest(),
                data=data.name,
                files={},
            )
            if sources is not None:
                (data / SOURCES).write_text(sources(), encoding="utf-8")
            _finish(manifest, data, embedder)
            manifest.write(directory)
        return cls(directory, manifest)

    @classmethod
    def open(cls, directory: Path, *, verify: bool = True) -> LexicalIndex:
        """Open for searching. SearchIndexError if there is no index, it is damaged or of another version.

        `verify=False` leaves the checksums out, which otherwise cost about a second for 2 GB.
        """
        manifest = Manifest.read(directory)
        if verify:
            manifest.check_files(directory)
        return cls(directory, manifest)

    def _load(self, manifest: Manifest) -> None:
        try:
            with linked(self.directory / manifest.data) as data:
                searcher = tantivy.Index.open(str(data)).searcher()
        except (ValueError, OSError) as error:
            if is_of_disk(error):
                raise SearchIndexError(
                    disk_text(error, f"The search index in {self.directory} cannot be opened")
                ) from error
            raise SearchIndexError(
                f"The search index in {self.directory} cannot be opened: {error}. It was written by tantivy "
                f"{manifest.tantivy}, this is {version('tantivy')}. {REMEDY}"
            ) from error
        if searcher.num_docs != manifest.passages:
            raise SearchIndexError(
                f"The search index in {self.directory} holds {searcher.num_docs:,} passages where its manifest says "
                f"{manifest.passages:,}. {REMEDY}"
            )
        self.manifest = manifest
        self.analyser = Analyser(manifest.analyser.stemming)
        self._searcher = searcher

    def __len__(self) -> int:
        """Number of passages."""
        return self.manifest.passages

    def get(self, passage_id: str) -> Passage:
        """The passage with this id. DataError if there is none."""
        hits = self._searcher.search(exact_query("id", passage_id), 1, count=False).hits
        if not hits:
            raise DataError(f"The search index in {self.directory} has no passage {passage_id!r}.")
        return from_stored(self._searcher.doc(hits[0][1]))

    def place_of(self, document_id: str) -> int | None:
        """The place at which a passage of this document was added; None if there is none."""
        hits = self._searcher.search(exact_query("document_id", document_id), 1, count=False).hits
        return _orders_at(self._searcher, [hits[0][1]])[0] if hits else None

    def passages(self) -> Iterator[Passage]:
        """Every passage, in the order in which they were added."""
        return _in_order(self._searcher, len(self))

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """For each query at most k passages, best first, each with its score. Any text is a query; a text without terms
        finds nothing."""
        return self.find_all(queries, k)

    def find_all(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """`search`, without awaiting."""
        return [self.find(query, k) for query in queries]

    def find(self, query: str, k: int) -> list[Passage]:
        """`search` for one query, without awaiting."""
        return [from_stored(self._searcher.doc(address), score) for score, _, address in self._ranked(query, k)]

    def rank(self, query: str, k: int) -> list[int]:
        """The places of these passages among `passages`, best first; no text is read."""
        return [order for _, order, _ in self._ranked(query, k)]

    def _ranked(self, text: str, k: int) -> list[tuple[float, int, tantivy.DocAddress]]:
        """Score, order and address of the k best, equal scores by order of adding: so all that tie with the last of
        them must be looked at."""
        terms = list(dict.fromkeys(self.analyser.tokens(text)))[:MAX_QUERY_TERMS]
        k = min(k, len(self))
        if not terms or k < 1:
            return []
        query, limit = terms_query(terms, self.manifest.title_boost), k + 8
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

    def add(self, passages: Iterable[Passage], *, embedder: PassageEmbedder | None = None) -> None:
        """Add passages, all or none, after those that are there. DataError for an id that is there already (delete
        its document first). An index with vectors needs the embedder that made them (see `DenseIndex.add`)."""
        with self._changed(embedder) as (data, manifest):
            copy_files(self.directory / self.manifest.data, data)
            (data / SOURCES).unlink(missing_ok=True)  # it would no longer be true
            digest = ContentDigest()
            index, new = tantivy.Index.open(str(data)), digest.watch(self._new(passages))
            count, documents = _write(index, new, self.analyser, first=manifest.passages)
            manifest.passages += count
            manifest.documents += sum(not self._has("document_id", document) for document in documents)
            manifest.content = content_after(manifest.content, digest.hexdigest())

    def delete(self, document_ids: Iterable[str], *, embedder: PassageEmbedder | None = None) -> int:
        """Delete all passages of these documents; unknown ids are ignored. Returns the number of deleted passages.
        `embedder` is as for `add`.

        The terms of all other passages are written anew, which takes as long as building: tantivy would go on counting
        the deleted ones in BM25's statistics.
        """
        before, gone = len(self), {id for id in set(document_ids) if self._has("document_id", id)}
        if not gone:
            return 0
        with self._changed(embedder) as (data, manifest):
            copy_files(self.directory / self.manifest.data, data, "*.bin")  # the vectors
            left = (passage for passage in self.passages() if passage.document_id not in gone)
            digest = ContentDigest()
            manifest.passages, _ = _write(_new_index(data), digest.watch(left), self.analyser)
            manifest.documents -= len(gone)
            manifest.content = digest.hexdigest()
        return before - len(self)

    @contextmanager
    def _changed(self, embedder: PassageEmbedder | None) -> Generator[tuple[Path, Manifest]]:
        """An empty data folder and a copy of the manifest, in which the block writes the changed index and updates the
        numbers of passages and documents."""
        if self.manifest.vectors and embedder is None:
            raise SearchIndexError(
                f"The search index in {self.directory} holds vectors, which would no longer be those of its passages. "
                "Open it with DenseIndex.open, and add or delete there."
            )
        with change(self.directory) as data:
            manifest = Manifest.read(self.directory)
            if manifest != self.manifest:
                raise SearchIndexError(
                    f"The search index in {self.directory} was changed by another process after it was opened here. "
                    "Open it again, then change it."
                )
            yield data, manifest
            manifest.next_order, manifest.data = manifest.passages, data.name
            _finish(manifest, data, embedder)
            manifest.write(self.directory)
        self._load(manifest)

    def _new(self, passages: Iterable[Passage]) -> Iterator[Passage]:
        """The same passages. DataError for one whose id is there already."""
        for passage in passages:
            if self._has("id", passage.id):
                raise _twice(passage.id)
            yield passage

    def _has(self, field: str, value: str) -> bool:
        """Whether a passage has exactly this id or document id."""
        return bool(self._searcher.search(exact_query(field, value), 1, count=False).hits)


def _new_index(data: Path) -> tantivy.Index:
    return _on_disk(tantivy.Index, SCHEMA, str(data))


def _write(
    index: tantivy.Index, passages: Iterable[Passage], analyser: Analyser, *, first: int = 0
) -> tuple[int, set[str]]:
    """Add passages, the first of them at the place `first`. Returns their number and the ids of their documents.
    DataError for an id that comes twice."""
    documents, count = set[str](), 0
    with _writer(index) as writer:
        for count, passage in enumerate(_unique(passages), start=1):
            documents.add(passage.document_id)
            _on_disk(writer.add_document, to_stored(passage, first + count - 1, analyser))
    return count, documents


@contextmanager
def _writer(index: tantivy.Index) -> Generator[tantivy.IndexWriter]:
    """One thread writes, so that the order of passages is kept. Commits unless the block fails; then, in any case,
    waits until nothing writes any more."""
    writer = _on_disk(index.writer, _WRITER_BYTES, num_threads=1)
    try:
        yield writer
        _on_disk(writer.commit)
    finally:
        _on_disk(writer.wait_merging_threads)


def _on_disk(operation: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """Run an operation of tantivy's that writes. A disk that fails is a ValueError there; here it is an OSError."""
    try:
        return operation(*args, **kwargs)
    except ValueError as error:
        raise OSError(str(error)) from error


def _unique(passages: Iterable[Passage]) -> Iterator[Passage]:
    seen: set[str] = set()
    for passage in passages:
        if passage.id in seen:
            raise _twice(passage.id)
        seen.add(passage.id)
        yield passage


def _twice(passage_id: str) -> DataError:
    return DataError(
        f"The passage id {passage_id!r} comes twice. Every passage needs an id of its own; to replace a passage, "
        "delete its document first."
    )


def _finish(manifest: Manifest, data: Path, embedder: PassageEmbedder | None) -> None:
    """Give the passages their vectors, and record all files of the data folder."""
    if embedder:
        passages = _in_order(tantivy.Index.open(str(data)).searcher(), manifest.passages)
        manifest.vectors = embedder.write(data, passages, manifest.passages, content=manifest.content)
    manifest.files = _records(data)


def _in_order(searcher: tantivy.Searcher, end: int) -> Iterator[Passage]:
    """The passages whose order is below `end`, by their orders."""
    for page in _pages(searcher, end):
        for address in page:
            yield from_stored(searcher.doc(address))


def _orders_at(searcher: tantivy.Searcher, addresses: list[tantivy.DocAddress]) -> list[int]:
    """Of some passages: every passage has one, a whole number."""
    return cast("list[int]", searcher.fast_field_values("order", addresses))


def _pages(searcher: tantivy.Searcher, end: int) -> Iterator[list[tantivy.DocAddress]]:
    for first in range(0, end, _PAGE):
        page = searcher.search(
            order_query(first, first + _PAGE), _PAGE, False, order_by_field="order", order=tantivy.Order.Asc
        )
        yield [address for _, address in page.hits]


def _records(data: Path) -> dict[str, FileRecord]:
    """Size and checksum of all files (tantivy's locks aside)."""
    return {path.name: record_file(path) for path in sorted(data.iterdir()) if path.suffix != ".lock"}


class Lexical:
    """The part `lexical`: the index that `search.index` names."""

    Settings = SearchSettings

    @classmethod
    def build(cls, settings: SearchSettings, context: object) -> LexicalIndex:
        """The index, opened. Raises ConfigError or SearchIndexError."""
        return open_index(settings.index, setting="search.index")


def open_index(directory: str, *, setting: str) -> LexicalIndex:
    """An index to search by its terms. Raises ConfigError if `setting` was left empty, SearchIndexError if it cannot be
    used."""
    return LexicalIndex.open(index_directory(directory, setting=setting))


def check_index(directory: str, *, setting: str, engine: str = "auto") -> None:
    """Check that there is an index that an engine can search, without reading its contents. Raises the same errors as
    opening it."""
    path = index_directory(directory, setting=setting)
    manifest = Manifest.read(path)
    if engine in ("dense", "hybrid"):
        manifest.vectors_for(engine, path)


def index_directory(directory: str, *, setting: str) -> Path:
    """The directory of an index. Raises ConfigError if `setting` was left empty."""
    if not directory:
        raise ConfigError(f"No index was given: set {setting} to a directory that `evoseek index` made.")
    return Path(directory)
