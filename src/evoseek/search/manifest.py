"""The manifest of an index: what it was built with, what it holds, and the checksum of every file."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evoseek.errors import SearchIndexError
from evoseek.files import write_atomic
from evoseek.search.analyser import ANALYSER_VERSION

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


class Manifest(_Record):
    """Written last and by one rename: an index is what its manifest names, and nothing without one.

    `data` is the folder with tantivy's files; `next_order` is the place in the order of passages that the next one
    added will have.
    """

    format_version: Literal[1] = 1
    tantivy: str
    analyser: AnalyserRecord
    title_boost: float = Field(ge=0, allow_inf_nan=False)
    documents: int
    passages: int
    next_order: int
    data: str = Field(pattern=r"^data-[0-9a-f]+$")
    files: dict[str, FileRecord]

    def write(self, directory: Path) -> None:
        """Make this the manifest of the index in `directory`."""
        write_atomic(directory / NAME, self.model_dump_json(indent=1) + "\n")

    @staticmethod
    def read(directory: Path) -> Manifest:
        """Read and check against this version of evoseek. SearchIndexError if there is none, or it does not fit."""
        path = directory / NAME
        try:
            manifest = Manifest.model_validate_json(path.read_bytes())
        except FileNotFoundError as error:
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
                f"The manifest {path} is damaged or of another format than 1: {_first_problem(error)}. {REMEDY}"
            ) from error
        if manifest.analyser.version != ANALYSER_VERSION:
            raise SearchIndexError(
                f"The search index in {directory} was built with version {manifest.analyser.version} of the analyser, "
                f"this evoseek has version {ANALYSER_VERSION}, whose terms differ. {REMEDY}"
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
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return FileRecord(size=file.tell(), sha256=digest)


def _first_problem(error: OSError | ValidationError) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    problem = error.errors()[0]
    return f"{'.'.join(str(part) for part in problem['loc']) or 'the whole'}: {problem['msg']}"
