"""Checkpoints as they lie in a run directory: found and checked without loading anything (`learner.checkpoint` writes
them).

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
    """A verified checkpoint on disk; each model is loaded from its `part_directory`."""

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
                f"The checkpoint {self.directory} holds {', '.join(self.learner_values)}, but no {name}: it was made "
                "by another kind of training. Resume with the settings that it was begun with."
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
    """A model is loaded from whatever its folder holds: another configuration, a tokenizer, an adapter. Hidden files
    are not looked at."""
    found = (path.relative_to(directory) for path in sorted(directory.rglob("*")) if path.is_file())
    added = [path.as_posix() for path in found if path.as_posix() not in known and not path.name.startswith(".")]
    if added:
        more = f" and {len(added) - 1} more" if len(added) > 1 else ""
        raise AddedFileError(
            f"The checkpoint {directory} is whole, but holds {added[0]}{more}, which was not saved with it and could "
            "be loaded in place of what was. Nothing was changed; move what was added out of that folder."
        )


def latest_checkpoint(run_directory: Path) -> Checkpoint | None:
    """Return the newest checkpoint of a run that is whole, or None if the run has none.

    A damaged one is skipped with a warning. Raises CheckpointError if there are checkpoints but all are damaged, or one
    was made by another version, had files added, or cannot be read: these are not damaged, and training on would
    overwrite them.
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
            f"None of the {len(found)} checkpoints in {run_directory / 'checkpoints'} is whole. Restore one from a "
            "copy, or delete that folder to start the run from the beginning.",
            code="checkpoint.none_whole",
        )
    return None


def from_lasting(checkpoint: Checkpoint | None, load: Callable[[Checkpoint | None], T]) -> T:
    """Return what `load` makes of a checkpoint of a run, or of none. A run that trains deletes old ones: where this one
    is gone meanwhile, of the newest. Raises what `load` raises, and as `latest_checkpoint`."""
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
    """Return what state.json says, itself verified, and the checksums of the other files."""
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
    """(step, directory) of all checkpoints, newest first."""
    paths = (run_directory / "checkpoints").glob("step-*")
    numbered = [(int(path.name[5:]), path) for path in paths if path.name[5:].isdecimal()]
    return sorted(numbered, reverse=True)


def _unread(directory: Path, error: OSError) -> CheckpointError:
    """A file that is not there is damage. One that cannot be read for another reason may be sound."""
    if isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError):
        return _damaged(directory, str(error))
    return UnreadableFileError(
        f"The checkpoint {directory} cannot be read: {error}. Nothing was changed. Make it readable (its owner, or the "
        "disk), or move it away to resume from the checkpoint before it."
    )


def _damaged(directory: Path, why: str) -> CheckpointError:
    return CheckpointError(
        f"The checkpoint {directory} is damaged: {why}. Expected it as it was written; delete it.",
        code="checkpoint.damaged",
    )
