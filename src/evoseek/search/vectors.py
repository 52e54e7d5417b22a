"""The vectors of an index: find the nearest to a query, by comparing all of them; and make them.

vectors.bin   a row of `dimension` numbers for each passage, in the order in which passages were added
ids.bin       the passages' ids (UTF-8), one after the other; ids_ends.bin: where each ends, as uint64

They are memory-mapped. New vectors are collected in two files beside the data folders, which outlive a killed process:
embedding.bin has rows as in vectors.bin, embedding.json their purpose, and how many rows are safely on disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from evoseek.errors import ConfigError
from evoseek.search.encoders import Embedder, Vectors
from evoseek.search.manifest import Manifest, VectorsRecord
from evoseek.storage.files import json_digest, write_atomic
from evoseek.types import Passage

_BLOCK = 16_384  # vectors at a time
_SCORE_DIGITS = 5  # sums of products differ in the last bits with the number of queries in a batch
CHUNK = 256  # passages that are encoded at a time
_SAVE_S = 2.0  # seconds between two flushes of new vectors
_ROUNDED = 2 * 10**-_SCORE_DIGITS  # scores that differ by less may be equal after rounding

Rows = NDArray[np.int64]


class VectorFiles:
    """The vectors in a data folder. Nothing is read before it is needed."""

    def __init__(self, data: Path, record: VectorsRecord) -> None:
        self._ends = _mapped(data / "ids_ends.bin", np.uint64)
        self._ids = _mapped(data / "ids.bin", np.uint8)
        self._vectors = _mapped(data / "vectors.bin", record.dtype).reshape(-1, record.encoder.dimension)

    def __len__(self) -> int:
        return len(self._ends)

    def id(self, row: int) -> str:
        start = int(self._ends[row - 1]) if row else 0
        return bytes(self._ids[start : int(self._ends[row])]).decode()

    def rows(self, rows: Rows) -> NDArray[Any]:
        return self._vectors[rows]

    def nearest(
        self, queries: Vectors, k: int, spans: Sequence[tuple[int, int]] | None = None
    ) -> list[tuple[list[int], list[float]]]:
        """Return, for each query (B, D), at most k rows (of these spans) with their inner products, best first, equal
        ones in order of rows. A query of zeros finds nothing."""
        spans = [(0, len(self))] if spans is None else spans
        k = min(k, sum(end - start for start, end in spans))
        if k < 1:
            return [([], []) for _ in queries]
        found = zip(queries, self._candidates(queries, k, spans), strict=True)
        return [self._best(query, rows, k) if query.any() else ([], []) for query, rows in found]

    def scores(self, query: Vectors, rows: Sequence[int]) -> dict[int, float]:
        """Return the inner products of a query with these rows."""
        found = self._vectors.take(np.array(rows, np.int64), axis=0).astype(np.float32, copy=False) @ query
        return dict(zip(rows, np.round(found, _SCORE_DIGITS).tolist(), strict=True))

    def _candidates(self, queries: Vectors, k: int, spans: Sequence[tuple[int, int]]) -> list[Rows]:
        """Return, for each query, the rows of each block that may be among the k best, and all equally good rows."""
        found: list[list[Rows]] = [[] for _ in queries]
        for first, last in ((at, min(at + _BLOCK, end)) for start, end in spans for at in range(start, end, _BLOCK)):
            block = self._vectors[first:last]
            scores = queries @ block.astype(np.float32, copy=False).T
            kept = min(k, len(block))
            least = np.partition(scores, -kept, axis=1)[:, -kept] - _ROUNDED
            for rows, own, bound in zip(found, scores, least, strict=True):
                rows.append(np.flatnonzero(own >= bound) + first)
        return [np.concatenate(rows) for rows in found]

    def _best(self, query: Vectors, rows: Rows, k: int) -> tuple[list[int], list[float]]:
        """Return the k best of these rows (in order), by their inner products with the query."""
        scores = np.round(self._vectors.take(rows, axis=0).astype(np.float32, copy=False) @ query, _SCORE_DIGITS)
        least = np.partition(scores, -k)[-k]  # sorting all of them would take longer than the products
        rows, scores = rows[scores >= least], scores[scores >= least]
        order = np.argsort(-scores, kind="stable")[:k]
        return rows[order].tolist(), scores[order].tolist()


def write_ids(data: Path, passages: Iterable[Passage]) -> Iterator[Passage]:
    """Yield the passages in the order of the rows, and write the id of each."""
    with (data / "ids.bin").open("wb") as texts, (data / "ids_ends.bin").open("wb") as ends:
        end = 0
        for passage in passages:
            end += texts.write(passage.id.encode())
            ends.write(np.uint64(end).tobytes())
            yield passage


def _mapped(path: Path, dtype: Any) -> NDArray[Any]:
    """Map a file as an array; an empty file cannot be mapped."""
    return np.asarray(np.memmap(path, dtype, "r")) if path.stat().st_size else np.empty(0, dtype)


class MadeVectors:
    """The vectors of an index, found by the embedded contents: passages with equal contents share a vector, at any
    place. It holds 24 bytes for each passage."""

    def __init__(self, directory: Path, manifest: Manifest, passages: Iterable[Passage]) -> None:
        """Read the vectors of `passages`, all of the index in order. SearchIndexError if there are none."""
        self.content = manifest.content
        record = manifest.vectors_for("dense", directory)
        self._files = VectorFiles(directory / manifest.data, record)
        self._digests, self._rows = np.unique(_contents_digests(passages), return_index=True)

    def of(self, passages: Sequence[Passage]) -> tuple[NDArray[np.bool_], NDArray[Any]]:
        """Return a mask of the passages that have a vector, and these vectors."""
        wanted = _contents_digests(passages)
        places = np.minimum(np.searchsorted(self._digests, wanted), len(self._digests) - 1)
        is_known = self._digests[places] == wanted
        return is_known, self._files.rows(self._rows[places[is_known]])


def _contents_digests(passages: Iterable[Passage]) -> NDArray[np.bytes_]:
    digests = bytearray()
    for passage in passages:
        digests += hashlib.sha256(passage.contents.encode()).digest()[:16]
    return np.frombuffer(digests, "S16")


def embed_passages(
    data: Path,
    passages: Iterable[Passage],
    count: int,
    content: str,
    *,
    encoder: Embedder,
    record: VectorsRecord,
    made: MadeVectors | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> VectorsRecord:
    """Write the vector files of an index's data folder, and return the record. `passages` are all its `count` passages
    in order, and `content` identifies them. `made` are vectors of the same encoder to reuse for equal contents.

    If the process is killed, the same call resumes; progress is saved every two seconds. `progress` is called with the
    numbers done and in total. Raises ConfigError if the encoder fails.
    """
    rows = write_ids(data, passages)
    key = json_digest([content, record.model_dump(), *([{"known": made.content}] if made else [])])
    collected = _Collected(data.parent, key, record)
    start, done = 0, collected.rows
    with collected.opened() as file:
        while chunk := list(islice(rows, CHUNK)):
            if start >= done:
                collected.add(file, _vectors_of(chunk, encoder, record, made))
                progress(start + len(chunk), count)
            start += len(chunk)
        collected.save(file)
    collected.link(data / "vectors.bin")
    return record


def _vectors_of(
    passages: Sequence[Passage], encoder: Embedder, record: VectorsRecord, made: MadeVectors | None
) -> NDArray[Any]:
    """Return the vectors of some passages, and make missing ones."""
    vectors = np.empty((len(passages), record.encoder.dimension), record.dtype)
    is_known = np.zeros(len(passages), np.bool_)
    if made:
        is_known, known = made.of(passages)
        vectors[is_known] = known
    if texts := [passage.contents for passage, known in zip(passages, is_known, strict=True) if not known]:
        own = encoder.passages(texts)
        _check(own, (len(texts), record.encoder.dimension), record)
        vectors[~is_known] = own
    return vectors


def _check(vectors: Vectors, wanted: tuple[int, int], record: VectorsRecord) -> None:
    if vectors.shape != wanted or not np.isfinite(vectors).all():
        got = f"an array {vectors.shape}" if vectors.shape != wanted else "numbers that are not finite"
        raise ConfigError(
            f"The encoder {record.encoder.settings} gave {got} for {wanted[0]} passages. Expected {wanted} finite "
            "numbers. Correct the encoder, or take another one."
        )


class _Collected:
    """The vectors made so far; `rows` of them are in the file when it is opened."""

    def __init__(self, directory: Path, key: str, record: VectorsRecord) -> None:
        self._file, self._state = directory / "embedding.bin", directory / "embedding.json"
        self._key, self._row_bytes = key, record.encoder.dimension * np.dtype(record.dtype).itemsize
        self.rows, self._saved = self._rows_before(), time.monotonic()

    def _rows_before(self) -> int:
        """Return the number of rows that a killed process left for the same purpose."""
        try:
            match json.loads(self._state.read_text()):
                case {"key": self._key, "rows": int(rows)} if self._file.stat().st_size >= rows * self._row_bytes:
                    return rows
                case _:
                    return 0
        except (OSError, ValueError):
            return 0

    def opened(self) -> BinaryIO:
        """Open the file for writing after its rows."""
        if not self.rows:  # a build killed at its very end left a link to the index's vectors
            self._file.unlink(missing_ok=True)
        file = self._file.open("r+b" if self.rows else "wb")
        file.truncate(self.rows * self._row_bytes)
        file.seek(0, os.SEEK_END)
        return file

    def add(self, file: BinaryIO, vectors: NDArray[Any]) -> None:
        file.write(vectors.tobytes())
        self.rows += len(vectors)
        if time.monotonic() - self._saved >= _SAVE_S:
            self.save(file)

    def save(self, file: BinaryIO) -> None:
        """Flush the rows, so that a killed process or a power failure does not lose them."""
        file.flush()
        os.fsync(file.fileno())
        write_atomic(self._state, json.dumps({"key": self._key, "rows": self.rows}))
        self._saved = time.monotonic()

    def link(self, target: Path) -> None:
        """Make `target` a link to the file of all collected vectors. They also stay in place, since the build may have
        to be resumed until the index is complete."""
        target.unlink(missing_ok=True)
        try:
            target.hardlink_to(self._file)
        except OSError:  # a file system without links
            shutil.copyfile(self._file, target)
