"""The vectors of a FAISS file, as retrieval corpora are published with them: an index that compares all (IndexFlatIP).

"IxFI", then little-endian: dimension (int32), number of vectors (int64), two unused int64, a byte, the metric (int32, 0
for the inner product), the number of numbers (uint64), and these as float32, vector after vector.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evoseek.errors import ConfigError, DataError
from evoseek.files import json_digest
from evoseek.search.encoders import Encoder
from evoseek.types import Passage

_HEADER = struct.Struct("<4siqqqBiQ")
_ALIKE = 0.9  # cosine of a vector of the file and that of the encoder, which may get the title in another form


class FaissFile:
    """Known vectors (see `search.vectors`): the first is that of the first passage, and so on."""

    def __init__(self, path: Path, encoder: Encoder) -> None:
        """`encoder` is the one that made the vectors. DataError for a file that holds something else."""
        self._path, self._encoder = path, encoder
        try:
            with path.open("rb") as file:
                head = file.read(_HEADER.size)
            state = path.stat()
        except OSError as error:
            raise DataError(f"The FAISS file {path} cannot be read: {error.strerror}. Give another file.") from error
        dimension = encoder.record.dimension
        kind, width, self._count, *_, metric, numbers = _HEADER.unpack(head.ljust(_HEADER.size, b"\0"))
        size = _HEADER.size + 4 * numbers
        if kind != b"IxFI" or metric or numbers != width * self._count or size != state.st_size:
            raise DataError(
                f"{path} begins with {kind!r} and has {state.st_size:,} bytes. Expected a whole file that FAISS wrote "
                "of an IndexFlatIP ('IxFI'), which holds the vectors themselves. Convert it, or leave out --vectors."
            )
        if width != dimension:
            raise ConfigError(
                f"The vectors in {path} have {width} numbers, those of the encoder {dimension}. Give the --encoder "
                "that made them."
            )
        self._vectors = np.memmap(path, "<f4", "r", offset=_HEADER.size, shape=(self._count, width))
        self._places = itertools.count()
        self.content = json_digest([str(path.resolve()), state.st_size, state.st_mtime_ns])

    def check(self, first: Sequence[Passage], count: int) -> None:
        """Raises ConfigError unless there is a vector for each of `count` passages, and those of the first ones are
        what the encoder makes of them."""
        if self._count != count:
            raise ConfigError(
                f"{self._path} holds {self._count:,} vectors, and the corpus {count:,} passages. Expected one for "
                "each: give the corpus that it was made from, and a --max-words that cuts none of its texts."
            )
        ours, theirs = self._encoder.passages([one.contents for one in first]), self._vectors[: len(first)]
        alike = (ours * theirs).sum(axis=1) / np.maximum(np.linalg.norm(theirs, axis=1), 1e-9)
        if (alike < _ALIKE).any():
            raise ConfigError(
                f"The first vectors in {self._path} are not those that the encoder makes of the first passages: their "
                f"cosines are {', '.join(f'{value:.2f}' for value in alike)}. Expected at least {_ALIKE}. Give the "
                "corpus and the --encoder that the vectors were made from."
            )

    def row(self, passage: Passage) -> int:
        return next(self._places)

    def rows(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        return self._vectors[rows]
