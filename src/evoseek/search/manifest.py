"""The manifest of an index: how it was built, its contents, and the checksum of every file and of itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evoseek.errors import SearchIndexError
from evoseek.files import file_digest, json_digest, nearest, write_atomic
from evoseek.search.analyser import ANALYSER_VERSION
from evoseek.types import Passage

NAME = "manifest.json"
REMEDY = "Build it again with `evoseek index`."


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class FileRecord(_Record):
    """Size in bytes and SHA-256 of one file."""

    size: int
    sha256: str


class AnalyserRecord(_Record):
    """How the text was made into terms."""

    version: int
    stemming: Literal["none", "english"]


class BM25Record(_Record):
    """The constants of BM25. They are tantivy's own, which cannot be set."""

    k1: float = 1.2
    b: float = 0.75


class EncoderRecord(_Record):
    """How an encoder makes vectors: its settings by which it is made again, the prompts before texts, how token vectors
    become one, the number of dimensions, and the checksum of the weights."""

    settings: dict[str, str | int | float | bool]
    query_prompt: str
    passage_prompt: str
    pooling: str
    dimension: int
    weights: str


class VectorsRecord(_Record):
    """The vectors of the passages: of which encoder, and the type of their numbers."""

    encoder: EncoderRecord
    dtype: Literal["float32", "float16"]


class Manifest(_Record):
    """Written last and by one rename: an index is what its manifest names, and nothing without one.

    `data` is the folder with tantivy's files; `next_order` is the place in the order of passages that the next one
    added will have, which is their number. `max_words` is the longest that a passage was cut to, `engine` the one that
    searches the index unless another is named, `vectors` those of an index that dense search can read. `content` is the
    checksum of the passages that it was built from or, once some were added, follows from it (`content_after`).
    `sha256` is the checksum of all the rest of the manifest.
    """

    format_version: Literal[2] = 2
    tantivy: str
    analyser: AnalyserRecord
    title_boost: float = Field(ge=0, allow_inf_nan=False)
    bm25: BM25Record | None = None  # as in all that are optional, None is in an index of before they were recorded
    max_words: int | None = None
    engine: Literal["lexical", "dense", "hybrid"] | None = None
    vectors: VectorsRecord | None = None
    documents: int
    passages: int
    next_order: int
    content: str
    data: str = Field(pattern=r"^data-[0-9a-f]+$")
    files: dict[str, FileRecord]
    sha256: str = ""

    @property
    def identity(self) -> str:
        """A digest that identifies the contents of the index: the same wherever it is stored, and for the same passages
        indexed again in the same way."""
        vectors = [self.vectors.model_dump()] if self.vectors else []
        return json_digest([self.content, self.analyser.model_dump(), self.title_boost, *vectors])

    def engine_for(self, name: str) -> str:
        """The name of the engine that searches the index by the name `auto`, or else the name itself."""
        return (self.engine or "lexical") if name == "auto" else name

    def vectors_for(self, engine: str, directory: Path) -> VectorsRecord:
        """The vectors, which an engine needs. SearchIndexError if the index has none."""
        if self.vectors is None:
            raise SearchIndexError(
                f"The search index in {directory} has no vectors, which the engine {engine} needs. Build it again with "
                f"`evoseek index --engine {engine}`, or search it with the engine lexical."
            )
        return self.vectors

    def write(self, directory: Path) -> None:
        """Make this the manifest of the index in `directory`."""
        self.sha256 = self._checksum()
        write_atomic(directory / NAME, self.model_dump_json(indent=1, exclude_none=True) + "\n")

    def _checksum(self) -> str:
        return json_digest(self.model_dump(exclude={"sha256"}, exclude_none=True))

    @staticmethod
    def read(directory: Path) -> Manifest:
        """Read and check against this version of evoseek. SearchIndexError if there is none, or it does not fit."""
        path = directory / NAME
        try:
            manifest = Manifest.model_validate_json(path.read_bytes())
        except FileNotFoundError as error:
            if not directory.exists():
                raise SearchIndexError(
                    f"There is no folder {directory}.{nearest(directory)} Expected a search index: build one from your "
                    "documents with `evoseek index`, or check the path."
                ) from error
            raise SearchIndexError(
                f"There is no search index in {directory}: {NAME} is missing, so none was built there, or building it "
                f"was interrupted. {REMEDY}"
            ) from error
        except NotADirectoryError as error:
            raise SearchIndexError(
                f"{directory} is a file, not a search index. Expected a folder that `evoseek index` made: build one "
                "from your documents and give that."
            ) from error
        except (OSError, ValidationError) as error:
            raise SearchIndexError(
                f"The manifest {path} is damaged or of another format than 2: {_first_problem(error)}. {REMEDY}"
            ) from error
        if manifest.sha256 != manifest._checksum():
            raise SearchIndexError(
                f"The manifest {path} was changed since it was written: it does not match its own checksum, so the "
                f"index may not be what it says. Restore the file from a copy. {REMEDY}"
            )
        if manifest.analyser.version != ANALYSER_VERSION:
            raise SearchIndexError(
                f"The search index in {directory} was built with version {manifest.analyser.version} of the analyser, "
                f"this evoseek has version {ANALYSER_VERSION}, whose terms differ. {REMEDY}"
            )
        if manifest.next_order > manifest.passages:
            raise SearchIndexError(
                f"Documents were deleted from the search index in {directory} by an earlier version, which went on "
                f"counting their words in the scores of all others. {REMEDY}"
            )
        return manifest

    def check_files(self, directory: Path) -> None:
        """SearchIndexError if any file is missing or is not, byte for byte, what was built (reads about 2 GB/s)."""
        for name, expected in self.files.items():
            path = directory / self.data / name
            try:
                found = record_file(path)
            except OSError as error:
                raise SearchIndexError(
                    f"The search index in {directory} is damaged: {path} cannot be read ({error.strerror}). {REMEDY}"
                ) from error
            if found != expected:
                raise SearchIndexError(
                    f"The search index in {directory} is damaged: {path} has {found.size:,} bytes where "
                    f"{expected.size:,} were written{'' if found.size != expected.size else ', with other contents'}. "
                    f"{REMEDY}"
                )


def record_file(path: Path) -> FileRecord:
    """Size and checksum of a file. OSError if it cannot be read."""
    return FileRecord(sha256=file_digest(path), size=path.stat().st_size)


class ContentDigest:
    """The checksum of a stream of passages, taken while they pass through. Their citations are not in it: no search and
    no policy sees them."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def watch(self, passages: Iterable[Passage]) -> Iterator[Passage]:
        """The same passages."""
        for passage in passages:
            row = [passage.id, passage.document_id, passage.title, passage.text, passage.start, passage.end]
            self._hash.update(json.dumps(row).encode() + b"\n")
            yield passage

    def hexdigest(self) -> str:
        """The digest of all passages so far."""
        return self._hash.hexdigest()


def content_after(before: str, added: str) -> str:
    """The `content` of an index that had another one, after passages with this digest were added."""
    return json_digest([before, "add", added])


def _first_problem(error: OSError | ValidationError) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    problem = error.errors()[0]
    return f"{'.'.join(str(part) for part in problem['loc']) or 'the whole'}: {problem['msg']}"
