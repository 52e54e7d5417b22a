"""The vectors of an index: the nearest to a query, exactly, or by binary codes with exact rescoring; and making them.

vectors.bin   a row of `dimension` numbers for each passage, in the order in which passages were added
codes.bin     a bit for each number, 1 where it is above the centre; 64-bit words, the first word of all rows first
centre.bin    the mean of the vectors, float32
ids.bin       the passages' ids (UTF-8), one after the other; ids_ends.bin: where each ends, as uint64

They are memory-mapped. While they are made, they are collected in two files beside the data folders, which outlive a
killed process: embedding.bin has rows as in vectors.bin, embedding.json what they are for, and how many rows are safely
on disk.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from evoseek.errors import ConfigError
from evoseek.search.encoders import Encoder, Vectors
from evoseek.search.manifest import Manifest, VectorsRecord
from evoseek.storage.files import json_digest, write_atomic
from evoseek.types import Passage

EXACT_ROWS = 20_000  # up to so many vectors are all compared with the query
NEAR, NEAR_EACH = 6_000, 50  # beyond that so many vectors, and more for each of k, have the nearest codes
RESCORED, RESCORED_EACH = 300, 10  # so many of these, with the greatest products of signs and query, are compared
_BLOCK = 16_384  # vectors at a time
_CODES = 32_768  # codes at a time, so that what is being counted stays in the processor's cache
_SIGNS = 256  # codes at a time whose signs are written out, for the same reason
_COUNTED = 8_192  # distances from which it is estimated how near the nearest codes are
_SCORE_DIGITS = 5  # sums of products differ in the last bits with the number of queries asked at a time
CHUNK = 256  # passages that are encoded at a time
CHECKED = 8  # passages whose known vectors are checked
_SAVE_S = 2.0  # seconds between two times that new vectors are made safe
_ROUNDED = 2 * 10**-_SCORE_DIGITS  # scores that differ by less may be equal when they are rounded

Rows = NDArray[np.int64]


class VectorFiles:
    """The vectors in a data folder. Nothing is read before it is needed."""

    def __init__(self, data: Path, record: VectorsRecord, *, exact_rows: int = EXACT_ROWS) -> None:
        dimension = record.encoder.dimension
        self._ends = _mapped(data / "ids_ends.bin", np.uint64, (-1,))
        self._ids = _mapped(data / "ids.bin", np.uint8, (-1,))
        self._vectors = _mapped(
            data / "vectors.bin", np.dtype(record.dtype), (-1, dimension), is_random=len(self) > exact_rows
        )
        self._codes = _mapped(data / "codes.bin", np.uint64, (_words(dimension), len(self._ends)))
        self._centre = np.fromfile(data / "centre.bin", np.float32)
        self._exact_rows = exact_rows

    def __len__(self) -> int:
        return len(self._ends)

    def id(self, row: int) -> str:
        start = int(self._ends[row - 1]) if row else 0
        return bytes(self._ids[start : int(self._ends[row])]).decode()

    def rows(self, rows: Rows) -> NDArray[Any]:
        return self._vectors[rows]

    def blocks(self) -> Iterator[NDArray[Any]]:
        for start in range(0, len(self), _BLOCK):
            yield self._vectors[start : start + _BLOCK]

    def nearest(self, queries: Vectors, k: int) -> list[tuple[list[int], list[float]]]:
        """For each query (B, D) at most k rows with their inner products, best first, equal ones in the order of the
        rows. A query of zeros finds nothing."""
        k = min(k, len(self))
        if k < 1:
            return [([], []) for _ in queries]
        is_exact = len(self) <= self._exact_rows
        found = self._compared(queries, k) if is_exact else (self._near(query, k) for query in queries)
        return [
            self._best(query, rows, k) if query.any() else ([], []) for query, rows in zip(queries, found, strict=True)
        ]

    def _compared(self, queries: Vectors, k: int) -> list[Rows]:
        """For each query rows among which the k best are, and all that are as good: those of each block."""
        found: list[list[Rows]] = [[] for _ in queries]
        for number, block in enumerate(self.blocks()):
            scores = queries @ block.astype(np.float32, copy=False).T
            kept = min(k, len(block))
            least = np.partition(scores, -kept, axis=1)[:, -kept] - _ROUNDED
            for rows, own, bound in zip(found, scores, least, strict=True):
                rows.append(np.flatnonzero(own >= bound) + number * _BLOCK)
        return [np.concatenate(rows) for rows in found]

    def _near(self, query: Vectors, k: int) -> Rows:
        """Of the rows whose codes differ in the fewest bits from the query's, those whose signs have the greatest inner
        products with the query: reading a code costs a small part of reading a vector."""
        distances = hamming(self._codes, codes(query[None], self._centre)[:, 0])
        wanted, step = min(NEAR + NEAR_EACH * k, len(self)), max(1, len(self) // _COUNTED)
        rows, kept = _within(distances, wanted, step), RESCORED + RESCORED_EACH * k
        if len(rows) < k:
            rows = _within(distances, wanted, 1)
        if len(rows) <= kept:
            return rows
        products = sign_products(self._codes.take(rows, axis=1), query)
        return rows[products >= np.partition(products, -kept)[-kept]]

    def _best(self, query: Vectors, rows: Rows, k: int) -> tuple[list[int], list[float]]:
        """The k best of these rows (in order), by their inner products with the query."""
        scores = np.round(self._vectors.take(rows, axis=0).astype(np.float32, copy=False) @ query, _SCORE_DIGITS)
        least = np.partition(scores, -k)[-k]  # sorting all of them would take longer than the products
        rows, scores = rows[scores >= least], scores[scores >= least]
        order = np.argsort(-scores, kind="stable")[:k]
        return rows[order].tolist(), scores[order].tolist()


def write_ids(data: Path, passages: Iterable[Passage]) -> Iterator[Passage]:
    """The passages, in the order of the rows; their ids are written as they are taken."""
    with (data / "ids.bin").open("wb") as texts, (data / "ids_ends.bin").open("wb") as ends:
        end = 0
        for passage in passages:
            end += texts.write(passage.id.encode())
            ends.write(np.uint64(end).tobytes())
            yield passage


def write_codes(data: Path, record: VectorsRecord) -> None:
    """Write the centre and the codes of `vectors.bin`, which is there."""
    vectors = _mapped(data / "vectors.bin", np.dtype(record.dtype), (-1, record.encoder.dimension))
    blocks = [slice(start, start + _BLOCK) for start in range(0, len(vectors), _BLOCK)]
    centre = np.zeros(record.encoder.dimension, np.float64)
    for block in blocks:
        centre += vectors[block].sum(axis=0, dtype=np.float64) / len(vectors)
    centre = centre.astype(np.float32)
    centre.tofile(data / "centre.bin")
    shape = (_words(len(centre)), len(vectors))
    (data / "codes.bin").touch()  # an empty file cannot be mapped
    found = np.memmap(data / "codes.bin", np.uint64, "w+", shape=shape) if len(vectors) else np.empty(shape, np.uint64)
    for block in blocks:
        found[:, block] = codes(vectors[block].astype(np.float32, copy=False), centre)


def _within(distances: NDArray[np.uint16], wanted: int, step: int) -> Rows:
    """The rows of about so many of the smallest distances (at least so many with step 1), estimated from each
    `step`-th."""
    counts = np.bincount(distances[::step]).cumsum() * step
    return np.flatnonzero(distances <= np.uint16(np.searchsorted(counts, wanted)))  # compared as int64 it is slower


def codes(vectors: Vectors, centre: Vectors) -> NDArray[np.uint64]:
    """The signs of vectors (B, D) relative to a centre, as bits: (W, B) words of 64, the last one filled with 0."""
    packed = np.packbits(vectors > centre, axis=1)
    filled = np.zeros((len(vectors), _words(len(centre)) * 8), np.uint8)
    filled[:, : packed.shape[1]] = packed
    return np.ascontiguousarray(filled.view(np.uint64).T)


def hamming(codes: NDArray[np.uint64], code: NDArray[np.uint64]) -> NDArray[np.uint16]:
    """The number of bits in which each of N codes (W, N) differs from one (W)."""
    distances = np.empty(codes.shape[1], np.uint16)
    differing, counts = np.empty(_CODES, np.uint64), np.empty((len(codes), _CODES), np.uint8)
    for start in range(0, len(distances), _CODES):
        total = distances[start : start + _CODES]
        bits = differing[: len(total)]
        for word, count in zip(range(len(codes)), counts[:, : len(total)], strict=True):
            np.bitwise_xor(codes[word, start : start + _CODES], code[word], out=bits)
            np.bitwise_count(bits, out=count)
        counts[:, : len(total)].sum(axis=0, dtype=np.uint16, out=total)
    return distances


def sign_products(codes: NDArray[np.uint64], query: Vectors) -> Vectors:
    """For each of N codes (W, N) the sum of those of the query's numbers (D) whose bit is 1: but for a constant, half
    the inner product of the signs with the query."""
    packed, products = codes.T.copy().view(np.uint8), np.empty(codes.shape[1], np.float32)
    for start in range(0, len(products), _SIGNS):
        ones = np.unpackbits(packed[start : start + _SIGNS], axis=1, count=len(query))
        np.dot(ones.astype(np.float32), query, out=products[start : start + _SIGNS])
    return products


def _words(dimension: int) -> int:
    return -(-dimension // 64)


def _mapped(path: Path, dtype: Any, shape: tuple[int, ...], *, is_random: bool = False) -> NDArray[Any]:
    """A file as an array; an empty one cannot be mapped. If it `is_random` where it is read, nothing is read ahead,
    which would push other pages out of the memory."""
    if not path.stat().st_size:
        return np.empty(tuple(0 if size == -1 else size for size in shape), dtype)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if is_random:
        mapped.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(mapped, dtype).reshape(shape)


class KnownVectors(Protocol):
    """Vectors that need not be made. `content` identifies them."""

    content: str

    def check(self, first: Sequence[Passage], count: int) -> None:
        """Raises ConfigError if they are not those of `count` passages of which these are the first."""
        ...

    def of(self, passages: Sequence[Passage], start: int) -> tuple[NDArray[np.bool_], NDArray[Any]]:
        """Which of these passages, the first of which is number `start`, have a known vector; and these vectors."""
        ...


class MadeVectors:
    """The vectors of an index, found by what was embedded: a passage whose contents are the same has the same one,
    wherever it now stands. Holds 24 bytes for each passage."""

    def __init__(self, directory: Path, manifest: Manifest, passages: Iterable[Passage]) -> None:
        """`passages` are all of the index, in their order. SearchIndexError if it has no vectors."""
        self.content = manifest.content
        record = manifest.vectors_for("dense", directory)
        self._files = VectorFiles(directory / manifest.data, record, exact_rows=manifest.passages)
        self._digests, self._rows = np.unique(_contents_digests(passages), return_index=True)

    def check(self, first: Sequence[Passage], count: int) -> None:
        """Any passages may have some of them."""

    def of(self, passages: Sequence[Passage], start: int) -> tuple[NDArray[np.bool_], NDArray[Any]]:
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
    encoder: Encoder,
    record: VectorsRecord,
    made: KnownVectors | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> VectorsRecord:
    """Write the vector files of an index's data folder. `passages` are all of its `count` passages in their order,
    `content` identifies them; `made` are vectors of the same encoder, which are taken where they fit.

    If the process is killed, the same call resumes; what is done is saved every two seconds. `progress` is called with
    the numbers done and in total. Returns the record. Raises ConfigError if the encoder fails.
    """
    passages = iter(passages)
    first = list(islice(passages, CHECKED))
    if made:
        made.check(first, count)
    rows = write_ids(data, chain(first, passages))
    key = json_digest([content, record.model_dump(), *([{"known": made.content}] if made else [])])
    collected = _Collected(data.parent, key, record)
    start, done = 0, collected.rows
    with collected.opened() as file:
        while chunk := list(islice(rows, CHUNK)):
            if start >= done:
                collected.add(file, _vectors_of(chunk, start, encoder, record, made))
                progress(start + len(chunk), count)
            start += len(chunk)
        collected.save(file)
    collected.link(data / "vectors.bin")
    write_codes(data, record)
    return record


def _vectors_of(
    passages: Sequence[Passage], start: int, encoder: Encoder, record: VectorsRecord, made: KnownVectors | None
) -> NDArray[Any]:
    """The vectors of some passages, of which those that are not known are made."""
    vectors = np.empty((len(passages), record.encoder.dimension), record.dtype)
    is_known = np.zeros(len(passages), np.bool_)
    if made:
        is_known, known = made.of(passages, start)
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
    """The vectors that were made so far; `rows` of them are in the file when it is opened."""

    def __init__(self, directory: Path, key: str, record: VectorsRecord) -> None:
        self._file, self._state = directory / "embedding.bin", directory / "embedding.json"
        self._key, self._row_bytes = key, record.encoder.dimension * np.dtype(record.dtype).itemsize
        self.rows, self._saved = self._rows_before(), time.monotonic()

    def _rows_before(self) -> int:
        """The rows that a killed process left for the same purpose."""
        try:
            match json.loads(self._state.read_text()):
                case {"key": self._key, "rows": int(rows)} if self._file.stat().st_size >= rows * self._row_bytes:
                    return rows
                case _:
                    return 0
        except (OSError, ValueError):
            return 0

    def opened(self) -> BinaryIO:
        """The file, to be written to after the rows that are in it."""
        if not self.rows:  # a build that was killed at its very end left a link to the index's vectors
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
        """Make sure that a killed process, or a power failure, does not lose the rows."""
        file.flush()
        os.fsync(file.fileno())
        write_atomic(self._state, json.dumps({"key": self._key, "rows": self.rows}))
        self._saved = time.monotonic()

    def link(self, target: Path) -> None:
        """Make `target` the file of all vectors, which are those that were collected. Until the index is there the
        build may have to be resumed, so they stay where they are, too."""
        target.unlink(missing_ok=True)
        try:
            target.hardlink_to(self._file)
        except OSError:  # a file system without links
            shutil.copyfile(self._file, target)
