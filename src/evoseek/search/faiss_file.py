"""The engine `faiss`: an index file of FAISS with its corpus of JSON lines, as users of Search-R1 have them."""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evoseek.errors import ConfigError, SearchIndexError, ToolError
from evoseek.files import nearest
from evoseek.search.encoders import Encoder, make_encoder
from evoseek.search.remote import passage_of
from evoseek.search.settings import SearchSettings
from evoseek.types import Passage

_BLOCK = 2**24  # bytes in which the ends of lines are looked for at a time


class FaissSettings(SearchSettings):
    """A FAISS file and its corpus."""

    name: str = Field(default="faiss", description="Name of the engine.")
    file: str = Field(default="", description="File that faiss.write_index made, such as e5_Flat.index.")
    corpus: str = Field(
        default="", description="JSON-lines file with `id` and `contents`, a line for each vector, in the same order."
    )
    encoder: str = Field(
        default="intfloat/e5-base-v2",
        description="Encoder of the vectors: static, minilm, or a sentence-transformers model.",
    )

    def problems(self) -> Iterator[str]:
        """Both files are needed."""
        yield from super().problems()
        for name in ("file", "corpus"):
            if not getattr(self, name):
                yield f"search.name is faiss, but search.{name} is empty. Set it to the path of the file."


class FaissFile:
    """Searches a FAISS index with the encoder that made its vectors. The file does not record it: give the right one.

    Both files are mapped, not read, where FAISS can. Scores are inner products, or negated distances.
    """

    is_local = True

    def __init__(self, file: Path, corpus: Path, encoder: Encoder) -> None:
        """SearchIndexError for files that cannot be read or do not belong together; ConfigError without FAISS."""
        self._index, self._is_distance = _opened(file)
        self._lines = _Lines(corpus)
        self._encoder = encoder
        counts, width = (self._index.ntotal, len(self._lines)), (self._index.d, encoder.record.dimension)
        if counts[0] != counts[1]:
            raise SearchIndexError(
                f"{file} has {counts[0]:,} vectors, and {corpus} has {counts[1]:,} lines. Expected a line for each "
                "vector, in the same order: give the corpus that the index was made from."
            )
        if width[0] != width[1]:
            raise SearchIndexError(
                f"{file} has vectors of {width[0]} numbers, and the encoder makes {width[1]}. Set search.encoder to "
                "the encoder that the index was made with."
            )

    def __len__(self) -> int:
        """Number of passages."""
        return len(self._lines)

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """For each query at most k passages, best first. Raises ToolError for a line of the corpus that cannot be
        read."""
        return self.find_all(queries, k)

    def find_all(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """`search`, without awaiting."""
        k = min(k, len(self))
        if k < 1 or not queries:
            return [[] for _ in queries]
        texts = [query.encode(errors="replace").decode() for query in queries]
        scores, rows = self._index.search(self._encoder.queries(texts), k)
        scores = -scores if self._is_distance else scores
        return [
            [self._passage(row, score) for row, score in zip(*found, strict=True) if row >= 0]
            for found in zip(rows.tolist(), scores.tolist(), strict=True)
        ]

    def _passage(self, row: int, score: float) -> Passage:
        try:
            return passage_of({"document": json.loads(self._lines[row]), "score": score})
        except ValueError as error:
            raise ToolError(f"Line {row + 1} of the corpus {self._lines.path} is not JSON: {error}.") from error


class _Lines:
    """The lines of a file, by number. Their places take 8 bytes each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise SearchIndexError(
                f"The corpus {path} cannot be read ({error}).{nearest(path)} Expected a file of JSON lines."
            ) from error
        self._ends = self._found_ends()

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> bytes:
        start = int(self._ends[number - 1]) if number else 0
        return self._map[start : int(self._ends[number])]

    def _found_ends(self) -> NDArray[np.int64]:
        size, ends = len(self._map), list[NDArray[np.int64]]()
        for start in range(0, size, _BLOCK):
            block = np.frombuffer(self._map[start : start + _BLOCK], np.uint8)
            ends.append(np.flatnonzero(block == ord("\n")) + start + 1)
        found = np.concatenate(ends)
        return found if len(found) and found[-1] == size else np.append(found, size)


def _opened(file: Path) -> tuple[Any, bool]:
    """The index, and whether it gives distances."""
    try:
        library: Any = import_module("faiss")
    except ImportError as error:
        raise ConfigError(
            f"The engine faiss needs the library, which is not installed ({error}). Install it: pip install "
            "'evoseek[faiss]'."
        ) from error
    try:
        index = library.read_index(str(file), library.IO_FLAG_MMAP | library.IO_FLAG_READ_ONLY)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        raise SearchIndexError(
            f"The FAISS index {file} cannot be read ({reason}).{nearest(file)} Expected a file that faiss.write_index "
            "made. If it came in parts, join them first."
        ) from error
    return index, index.metric_type == library.METRIC_L2


class Faiss:
    """The part `faiss`."""

    Settings = FaissSettings

    @classmethod
    def build(cls, settings: FaissSettings, context: object) -> FaissFile:
        """The engine. Raises as `FaissFile` does, and ConfigError for an encoder that cannot be loaded."""
        return FaissFile(Path(settings.file), Path(settings.corpus), make_encoder(settings.encoder))
