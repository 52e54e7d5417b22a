"""Checkpoints in a run directory: find and verify them without loading anything (`learner.checkpoint` writes them).

run/checkpoints/step-000010/
    policy/              a plain `from_pretrained` directory, whole
    policy.optimizer/    the optimizer's tensors, a file a rank
    critic/ ...          the same for every other part that is trained
    state.json           counters, the caller's position (step, data order, file lengths, random states), and
                         the SHA-256 of every other file and of itself
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from evoseek.errors import AddedFileError, CheckpointError, OtherVersionError, UnreadableFileError
from evoseek.storage.files import file_digest, json_digest

T = TypeVar("T")
FORMAT = 2
STATE = "state.json"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A verified checkpoint on disk. Load each model from its `part_directory`."""

    directory: Path
    step: int
    position: Mapping[str, object]
    learner_values: Mapping[str, Mapping[str, object]]
    digest: str
    """A digest of everything that was saved, independent of its location."""

    def part_directory(self, name: str) -> Path:
        """Return a part's `from_pretrained` directory. Raises CheckpointError if there is no such part."""
        if name not in self.learner_values:
            raise CheckpointError(
                f"The checkpoint {self.directory} holds {', '.join(self.learner_values)}, but no {name}: another kind "
                "of training wrote it. Resume with the settings with which the run began."
            )
        return self.directory / name


def load_checkpoint(directory: Path) -> Checkpoint:
    """Read and verify one checkpoint. Raises CheckpointError if anything in it is missing or altered; its subclasses
    are OtherVersionError, for another format, AddedFileError, for a checkpoint with additional files, and
    UnreadableFileError, for one that may be sound."""
    checkpoint, files = read_state(directory)
    for name, expected in files.items():
        try:
            found = file_digest(directory / name)
        except OSError as error:
            raise _unread(directory, error) from error
        if found != expected:
            raise _damaged(directory, f"{name} does not match its checksum")
    _refuse_added(directory, files.keys() | {STATE})
    return checkpoint


def _refuse_added(directory: Path, known: Collection[str]) -> None:
    """Raise AddedFileError for files that were not saved: a model loads any configuration, tokenizer or adapter in its
    folder. Hidden files do not count."""
    found = (path.relative_to(directory) for path in sorted(directory.rglob("*")) if path.is_file())
    added = [path.as_posix() for path in found if path.as_posix() not in known and not path.name.startswith(".")]
    if added:
        more = f" and {len(added) - 1} more" if len(added) > 1 else ""
        raise AddedFileError(
            f"The checkpoint {directory} is complete, but also contains {added[0]}{more}, which was not saved there. "
            "It could be loaded instead of a saved file. Nothing was changed. Move added files out of that folder."
        )


def latest_checkpoint(run_directory: Path) -> Checkpoint | None:
    """Return the newest undamaged checkpoint of a run, or None if the run has none.

    A damaged one is skipped with a warning. Raises CheckpointError if all are damaged, or if one was made by another
    version, has added files, or cannot be read: such a checkpoint is not damaged, and further training would overwrite
    it.
    """
    found = list_checkpoints(run_directory)
    for _, directory in found:
        try:
            return load_checkpoint(directory)
        except (OtherVersionError, AddedFileError, UnreadableFileError):
            raise
        except CheckpointError as error:
            if not directory.exists():  # deleted by a run that trains, which has saved a newer one
                return latest_checkpoint(run_directory)
            warnings.warn(f"{error} Going back to the checkpoint before it.", stacklevel=2)
    if found:
        raise CheckpointError(
            f"None of the {len(found)} checkpoints in {run_directory / 'checkpoints'} is intact. Restore one from a "
            "copy, or delete that folder to start the run from the beginning.",
            code="checkpoint.none_whole",
        )
    return None


def from_lasting(checkpoint: Checkpoint | None, load: Callable[[Checkpoint | None], T]) -> T:
    """Return `load(checkpoint)`. If a run in progress deleted the checkpoint meanwhile, load the newest one instead.
    Raises what `load` and `latest_checkpoint` raise."""
    while True:
        try:
            return load(checkpoint)
        except Exception:
            if checkpoint is None or checkpoint.directory.exists():
                raise
            if (newest := latest_checkpoint(checkpoint.directory.parents[1])) is None:
                raise
            checkpoint = newest


def read_state(directory: Path) -> tuple[Checkpoint, Mapping[str, str]]:
    """Read and verify state.json; return the checkpoint and the checksums of the other files."""
    try:
        state = json.loads((directory / STATE).read_text(encoding="utf-8"))
        body, checksum = state["body"], state["sha256"]
        if checksum != json_digest(body):
            raise _damaged(directory, f"{STATE} does not match its own checksum")
        if body["format"] != FORMAT:
            raise OtherVersionError(
                f"The checkpoint {directory} was made by another version of evoseek (format {body['format']}, this one "
                f"reads {FORMAT}). Nothing was changed; use that version, or another --run-dir for a new run."
            )
        return Checkpoint(directory, body["step"], body["position"], body["learners"], checksum), body["files"]
    except OSError as error:
        raise _unread(directory, error) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(directory, str(error)) from error


def list_checkpoints(run_directory: Path) -> list[tuple[int, Path]]:
    """Return (step, directory) of all checkpoints, newest first."""
    paths = (run_directory / "checkpoints").glob("step-*")
    numbered = [(int(path.name[5:]), path) for path in paths if path.name[5:].isdecimal()]
    return sorted(numbered, reverse=True)


def _unread(directory: Path, error: OSError) -> CheckpointError:
    """Return the error for an unreadable file: a missing one is damage, any other may be sound."""
    if isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError):
        return _damaged(directory, str(error))
    return UnreadableFileError(
        f"The checkpoint {directory} cannot be read: {error}. Nothing was changed. Fix its permissions or the disk, or "
        "move it away to resume from the checkpoint before it."
    )


def _damaged(directory: Path, why: str) -> CheckpointError:
    return CheckpointError(
        f"The checkpoint {directory} is damaged: {why}. Delete it.",
        code="checkpoint.damaged",
    )
