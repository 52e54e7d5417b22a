"""Embedding the passages of an index: only those that have no vector yet, and resumable.

Vectors are collected in two files beside the data folders, which outlive a killed process:

    embedding.bin    rows, as in vectors.bin
    embedding.json   what they are for, and how many rows are safely on disk
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from evoseek.errors import ConfigError
from evoseek.files import json_digest, write_atomic
from evoseek.search.encoders.encoder import Encoder, Vectors
from evoseek.search.manifest import Manifest, VectorsRecord
from evoseek.search.vectors import VectorFiles, write_vector_files
from evoseek.types import Passage

CHUNK = 256  # passages that are encoded at a time
_BLOCK = 16_384  # vectors that are written at a time


class Embedder:
    """Gives the passages of an index their vectors. `progress` is called with the numbers done and in
    total; what is done is saved every `save_s` seconds."""

    def __init__(
        self,
        encoder: Encoder,
        *,
        dtype: Literal["float32", "float16"] = "float32",
        progress: Callable[[int, int], None] = lambda done, of: None,
        save_s: float = 2.0,
        made: MadeVectors | None = None,
    ) -> None:
        """`made` are vectors of the same encoder and type that need not be made again."""
        self.record = VectorsRecord(encoder=encoder.record, dtype=dtype)
        self._encoder, self._progress, self._save_s, self._made = encoder, progress, save_s, made

    def write(self, data: Path, passages: Iterable[Passage], count: int, *, content: str) -> VectorsRecord:
        """Write the vector files of an index's data folder. `passages` are all of its `count` passages in their order,
        `content` identifies them.

        Vectors that are there (of the index as it was before a change) are kept for the passages that are left, and
        those that were made before are taken. If the process is killed, the same call resumes. Raises ConfigError if
        the encoder fails.
        """
        made = self._made or _kept_vectors(data, self.record)
        ids: list[str] = []
        rows: list[int] = []  # of vectors that were made before; -1 for a new one
        new = _new(passages, made, ids, rows)
        key = json_digest([content, self.record.model_dump(), *([self._made.content] if self._made else [])])
        collected = _Collected(data.parent, key, self.record)
        self._embed(new, collected, lambda: self._progress(len(ids), count))
        collected.finish(data / "vectors.bin", np.array(rows, np.int64), made)
        write_vector_files(data, self.record, ids)
        return self.record

    def _embed(self, passages: Iterator[Passage], collected: _Collected, tell: Callable[[], None]) -> None:
        for _ in islice(passages, collected.rows):  # done before
            pass
        saved = time.monotonic()
        with collected.opened() as file:
            while chunk := list(islice(passages, CHUNK)):
                vectors = self._encoder.passages([passage.contents for passage in chunk])
                self._check(vectors, len(chunk))
                file.write(vectors.astype(self.record.dtype).tobytes())
                collected.rows += len(chunk)
                if time.monotonic() - saved >= self._save_s:
                    collected.save(file)
                    saved = time.monotonic()
                tell()
            collected.save(file)

    def _check(self, vectors: Vectors, count: int) -> None:
        wanted = (count, self.record.encoder.dimension)
        if vectors.shape != wanted or not np.isfinite(vectors).all():
            got = f"an array {vectors.shape}" if vectors.shape != wanted else "numbers that are not finite"
            raise ConfigError(
                f"The encoder {self.record.encoder.settings} gave {got} for {count} passages. Expected {wanted} finite "
                "numbers. Correct the encoder, or take another one."
            )


class MadeVectors:
    """The vectors of an index, found by what was embedded: a passage whose title and text are the same has the same
    one, wherever it now stands. Holds a digest for each passage."""

    def __init__(self, directory: Path, manifest: Manifest, passages: Iterable[Passage]) -> None:
        """`passages` are all of the index, in their order. SearchIndexError if it has no vectors."""
        self.content = manifest.content
        self.files = VectorFiles(directory / manifest.data, manifest.vectors_for("dense", directory))
        self._rows = {_contents_digest(passage): row for row, passage in enumerate(passages)}

    def row(self, passage: Passage) -> int | None:
        """The row of a passage's vector; None if there is none."""
        return self._rows.get(_contents_digest(passage))


class _KeptVectors:
    """The vectors in a data folder, found by the ids of passages that are asked for in the order of the rows."""

    def __init__(self, files: VectorFiles) -> None:
        self.files, self._rows = files, enumerate(files.ids())

    def row(self, passage: Passage) -> int | None:
        """The row of a passage's vector; None if there is none."""
        return next((row for row, passage_id in self._rows if passage_id == passage.id), None)


def _kept_vectors(data: Path, record: VectorsRecord) -> _KeptVectors | None:
    return _KeptVectors(VectorFiles(data, record)) if (data / "vectors.bin").exists() else None


def _contents_digest(passage: Passage) -> bytes:
    return hashlib.sha256(passage.contents.encode()).digest()


def _new(
    passages: Iterable[Passage], made: MadeVectors | _KeptVectors | None, ids: list[str], rows: list[int]
) -> Iterator[Passage]:
    """The passages that have no vector yet. `ids` receives all ids, `rows` the row of each one's vector, or -1."""
    for passage in passages:
        ids.append(passage.id)
        row = made.row(passage) if made else None
        rows.append(-1 if row is None else row)
        if row is None:
            yield passage


class _Collected:
    """The vectors that were made so far; `rows` of them are safely on disk when it is opened."""

    def __init__(self, directory: Path, key: str, record: VectorsRecord) -> None:
        self._file, self._state = directory / "embedding.bin", directory / "embedding.json"
        self._dtype, self._dimension = np.dtype(record.dtype), record.encoder.dimension
        self._key, self._row_bytes = key, self._dimension * self._dtype.itemsize
        self.rows = self._rows_before()

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

    @contextmanager
    def opened(self) -> Generator[BinaryIO]:
        """The file, to be written to after the rows that are in it."""
        with self._file.open("r+b" if self.rows else "wb") as file:
            file.truncate(self.rows * self._row_bytes)
            file.seek(0, os.SEEK_END)
            yield file

    def save(self, file: BinaryIO) -> None:
        """Make sure that a killed process, or a power failure, does not lose the rows."""
        file.flush()
        os.fsync(file.fileno())
        write_atomic(self._state, json.dumps({"key": self._key, "rows": self.rows}))

    def finish(self, target: Path, rows: NDArray[np.int64], made: MadeVectors | _KeptVectors | None) -> None:
        """Make `target` the file of all vectors: the rows that were made before, and for each -1 the next collected
        one. These are then gone."""
        target.unlink(missing_ok=True)  # as it may be shared with the data folder of before
        with target.open("wb") as file, self._file.open("rb") as own:
            for start in range(0, len(rows), _BLOCK):
                block = rows[start : start + _BLOCK]
                vectors = np.empty((len(block), self._dimension), self._dtype)
                if made:
                    vectors[block >= 0] = made.files.rows(block[block >= 0])
                new = int((block < 0).sum())
                read = np.frombuffer(own.read(new * self._row_bytes), self._dtype)
                vectors[block < 0] = read.reshape(new, self._dimension)
                file.write(vectors.tobytes())
            file.flush()
            os.fsync(file.fileno())
        self._state.unlink()
        self._file.unlink()
