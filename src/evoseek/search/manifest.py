"""The folder of an index, which is replaced as a whole: the new state is completed beside the old one, then takes its
place.

    <directory>/manifest.json    how the index was built, with the checksum of every file; names the data folder
    <directory>/data-<random>/   tantivy's files, and the vectors' files if there are any
    <directory>/building-<key>/  the data folder of an interrupted build, from which the same build resumes
    <directory>/embedding.*      its vectors so far
    <directory>/.lock            held while the index is being written

A process killed at any moment leaves the old index (or none) unchanged, and files that the next build resumes or
removes. Processes that have the old index open keep it: their files are mapped.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from evoseek.errors import DataError, SearchIndexError, disk_text, first_problem, is_of_disk
from evoseek.search.analyser import ANALYSER_VERSION
from evoseek.search.settings import BuiltEngine
from evoseek.storage.files import file_digest, json_digest, nearest, remove_leftovers, sync_tree, write_atomic
from evoseek.storage.jsonl import held

_T = TypeVar("_T")

NAME = "manifest.json"
REMEDY = "Build it again with `evoseek index`."
_LOCK = ".lock"
_HASHED = 2**30  # maximum bytes of a file to check by its checksum at opening: a larger file would take seconds
_OWN = ("data-", "building-", f".{NAME}", "embedding.", ".embedding.")  # prefixes of the names of its other files


class _Record(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)  # the checksum covers all keys


class FileRecord(_Record):
    """Size in bytes and SHA-256 of one file."""

    size: int
    sha256: str


class AnalyserRecord(_Record):
    """How the text was split into terms."""

    version: int
    stemming: Literal["none", "english"]


class EncoderRecord(_Record):
    """How an encoder makes vectors: the settings to make it again, the prompts before texts, the pooling of token
    vectors, the number of dimensions, and the checksum of the weights."""

    settings: dict[str, str | int | float | bool]
    query_prompt: str
    passage_prompt: str
    pooling: str
    dimension: int
    weights: str


class VectorsRecord(_Record):
    """The vectors of the passages: their encoder, and the type of their numbers."""

    encoder: EncoderRecord
    dtype: Literal["float32", "float16"]


class Manifest(_Record):
    """The description of an index, written last and by one rename: only files that it names belong to the index.

    `data` is the folder with tantivy's files. `max_words` is the maximum length of a passage, `engine` the default
    engine of the index, `vectors` the vectors for dense search, if any. `content` is the checksum of the indexed
    passages, `sha256` the checksum of the rest of the manifest.
    """

    format_version: Literal[2] = 2
    tantivy: str
    analyser: AnalyserRecord
    title_boost: float = Field(ge=0, allow_inf_nan=False)
    max_words: int | None = None
    engine: BuiltEngine | None = None
    vectors: VectorsRecord | None = None
    documents: int
    passages: int
    content: str
    data: str = Field(pattern=r"^data-[0-9a-f]+$")
    files: dict[str, FileRecord]
    sha256: str = ""

    @property
    def identity(self) -> str:
        """A digest of the contents of the index: the same in any folder, and for the same passages indexed again in the
        same way."""
        vectors = [self.vectors.model_dump()] if self.vectors else []
        return json_digest([self.content, self.analyser.model_dump(), self.title_boost, *vectors])

    def engine_for(self, name: str) -> str:
        """Return the name of an engine; `auto` becomes the default engine of the index."""
        return (self.engine or "lexical") if name == "auto" else name

    def vectors_for(self, engine: str, directory: Path) -> VectorsRecord:
        """Return the record of the vectors that an engine needs. Raises SearchIndexError if the index has none."""
        if self.vectors is None:
            raise SearchIndexError(
                f"The search index in {directory} has no vectors, which the engine {engine} needs. Build it again with "
                f"`evoseek index --engine {engine}`, or search it with the engine lexical.",
                code="index.no_vectors",
            )
        return self.vectors

    def write(self, directory: Path) -> None:
        self.sha256 = _checksum(self.model_dump(exclude_none=True))
        write_atomic(directory / NAME, self.model_dump_json(indent=1, exclude_none=True) + "\n")

    @staticmethod
    def read(directory: Path) -> Manifest:
        """Read a manifest that this version of evoseek can use. Raises SearchIndexError if there is none."""
        path = directory / NAME
        try:
            text = path.read_bytes()
            manifest, written = Manifest.model_validate_json(text), json.loads(text)
        except (FileNotFoundError, NotADirectoryError) as error:
            what = f"There is no search index in {directory}: {NAME} is missing, or building it was interrupted."
            if not directory.exists():
                what = f"There is no folder {directory}.{nearest(directory)}"
            elif not directory.is_dir():
                what = f"{directory} is a file, not a search index."
            raise SearchIndexError(
                f"{what} Expected a folder that `evoseek index` made: build one of your documents, or check the path.",
                code="index.missing",
            ) from error
        except (OSError, ValueError) as error:
            if is_of_disk(error):
                raise SearchIndexError(
                    disk_text(error, f"The manifest {path} cannot be read"), code="disk.failed"
                ) from error
            raise SearchIndexError(
                f"The manifest {path} is damaged or of another format than 2: {first_problem(error)}. {REMEDY}",
                code="index.manifest_damaged",
            ) from error
        if manifest.sha256 != _checksum(written):
            raise SearchIndexError(
                f"The manifest {path} was changed since it was written: it does not match its own checksum, so the "
                f"index may not be what it says. Restore the file from a copy. {REMEDY}",
                code="index.manifest_changed",
            )
        if not 1 <= manifest.analyser.version <= ANALYSER_VERSION:
            raise SearchIndexError(
                f"The search index in {directory} was built with version {manifest.analyser.version} of the analyser, "
                f"this evoseek has the versions 1 to {ANALYSER_VERSION}. {REMEDY}",
                code="index.other_analyser",
            )
        if written.get("next_order", manifest.passages) != manifest.passages:
            raise SearchIndexError(
                f"Documents were deleted from the search index in {directory} by an earlier version, but their "
                f"words still count in the scores of all others. {REMEDY}",
                code="index.deleted_documents",
            )
        return manifest

    def check_files(self, directory: Path) -> None:
        """Raise SearchIndexError if a file is missing or was changed (reads about 2 GB/s). For files above 1 GiB only
        the size is compared."""
        for name, expected in self.files.items():
            path = directory / self.data / name
            try:
                size = path.stat().st_size
                is_hashed = size == expected.size <= _HASHED
                found = record_file(path) if is_hashed else FileRecord(size=size, sha256=expected.sha256)
            except OSError as error:
                if is_of_disk(error):
                    raise SearchIndexError(disk_text(error, f"{path} cannot be read"), code="disk.failed") from error
                raise SearchIndexError(
                    f"The search index in {directory} is damaged: {path} cannot be read ({error.strerror}). {REMEDY}",
                    code="index.damaged",
                ) from error
            if found != expected:
                raise SearchIndexError(
                    f"The search index in {directory} is damaged: {path} has {found.size:,} bytes where "
                    f"{expected.size:,} were written{'' if found.size != expected.size else ', with other contents'}. "
                    f"{REMEDY}",
                    code="index.damaged",
                )


def opened(directory: Path, opens: Callable[[Manifest], _T]) -> _T:
    """Read the manifest and call `opens` with it. If the index is replaced meanwhile, so that files are gone, repeat
    with the new manifest. Raises as `Manifest.read` and `opens`."""
    manifest = Manifest.read(directory)
    while True:
        try:
            return opens(manifest)
        except (SearchIndexError, OSError):
            now = Manifest.read(directory)
            if now.data == manifest.data:
                raise
            manifest = now


def record_file(path: Path) -> FileRecord:
    """Return the size and checksum of a file. OSError if it cannot be read."""
    return FileRecord(sha256=file_digest(path), size=path.stat().st_size)


def _checksum(written: dict[str, Any]) -> str:
    return json_digest({key: value for key, value in written.items() if key != "sha256"})


@contextmanager
def change(directory: Path, key: str | None = None) -> Generator[Path]:
    """Lock the index and yield a new data folder. `install` makes it the folder of the index and removes all others. If
    the block fails, the new folder is removed. With a `key`, it is kept if the block is interrupted or killed, or fails
    for a reason other than its contents or the disk; the next change with this key continues it.

    Raises as `held`, and SearchIndexError if the directory contains anything else or (also from the block) if the disk
    fails.
    """
    try:
        with held(directory, _LOCK):
            _refuse_foreign(directory)
            remove_leftovers(directory)
            building = directory / f"building-{key or secrets.token_hex(8)}"
            for folder in directory.glob("building-*"):
                if folder != building:
                    shutil.rmtree(folder, ignore_errors=True)
            building.mkdir(exist_ok=True)
            try:
                yield building
            except BaseException as error:
                if key is None or isinstance(error, OSError | DataError | SearchIndexError):
                    shutil.rmtree(building, ignore_errors=True)
                raise
    except OSError as error:
        raise SearchIndexError(
            disk_text(error, f"The search index in {directory} cannot be written"), code="disk.failed"
        ) from error


def install(building: Path, manifest: Manifest) -> None:
    """Make the folder of `change` the index's own, with the manifest that names it, and remove all others."""
    directory = building.parent
    sync_tree(building)  # otherwise only this user could read tantivy's files
    data = building.rename(directory / manifest.data)
    manifest.write(directory)
    for folder in directory.glob("data-*"):
        if folder != data:
            shutil.rmtree(folder, ignore_errors=True)
    for path in (*directory.glob("embedding.*"), *data.glob("*.lock")):  # tantivy's lock: each process makes its own
        path.unlink()


def _refuse_foreign(directory: Path) -> None:
    for entry in sorted(directory.iterdir()):
        if entry.name not in (NAME, _LOCK) and not entry.name.startswith(_OWN):
            raise SearchIndexError(
                f"The folder {directory} holds something that does not belong to a search index ({entry.name}). Give "
                "a new or empty folder, or one that holds an index.",
                code="index.foreign_folder",
            )


@contextmanager
def linked(data: Path) -> Generator[Path]:
    """Make a temporary folder of links to a data folder, for opening: tantivy puts locks beside its files, and this
    user may not be able to write there. Opened files stay open afterwards, since they are mapped.

    If tantivy's watching thread creates a lock while the folder is being removed, the folder stays."""
    with TemporaryDirectory(prefix="evoseek-index-", ignore_cleanup_errors=True) as folder:
        for path in data.iterdir():
            if path.suffix != ".lock":
                Path(folder, path.name).symlink_to(path.absolute())
        yield Path(folder)
