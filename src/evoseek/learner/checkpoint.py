"""Checkpoints: complete or absent, checked when read, never pickled, written and read by any number of ranks.

`evoseek.storage.checkpoints` shows their layout in a run directory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from evoseek.errors import CheckpointError
from evoseek.learner.distributed import ALONE, Ranks
from evoseek.learner.learner import LearnerBase
from evoseek.learner.sharding import read_shards, write_shards
from evoseek.storage.checkpoints import FORMAT, STATE, Checkpoint, latest_checkpoint, list_checkpoints, read_state
from evoseek.storage.files import file_digest, json_digest, remove_directory, remove_leftovers, replace_directory

Returned = TypeVar("Returned")


@dataclass(frozen=True, slots=True)
class CheckpointPart:
    """A model in training. `saver` writes it as a `from_pretrained` directory to a path. All ranks call it, so that it
    can put a sharded model together, but only the first may write."""

    saver: Callable[[Path], None]
    learner: LearnerBase[Any]


def save_checkpoint(
    run_directory: Path,
    *,
    step: int,
    parts: Mapping[str, CheckpointPart],
    position: Mapping[str, object],
    keep_last: int = 3,
    ranks: Ranks = ALONE,
) -> Path:
    """Write `checkpoints/step-<step>` and return it; keep `keep_last` checkpoints in all.

    `parts` are the models in training by name; `position` is any JSON that the caller needs to resume (the first rank's
    is kept). All ranks call this, with the run directory on a file system that they share. Checkpoints of later steps
    are removed: a resumed run has skipped them as damaged. Only one run may write there. If any rank cannot write (a
    full disk), all raise CheckpointError; the checkpoint is then invisible and earlier ones are untouched. The same
    holds if a process is killed at any moment.
    """
    target = run_directory / "checkpoints" / f"step-{step:06d}"
    with ExitStack() as unfinished:  # of the first rank; the others write into its directory
        begun = _together(ranks, target, lambda: _begin(unfinished, target) if ranks.is_first else None)
        directory = Path(ranks.gather(str(begun))[0])
        values: dict[str, Mapping[str, object]] = {}
        for name, part in parts.items():
            tensors, values[name] = part.learner.state_dict()
            _together(ranks, target, partial(part.saver, directory / name))
            _together(ranks, target, partial(write_shards, tensors, _optimizer_directory(directory / name), ranks))
        checksums = _together(ranks, target, lambda: _own_checksums(directory, ranks))
        files = {name: checksum for own in ranks.gather(checksums) for name, checksum in own.items()}
        body = {"format": FORMAT, "step": step, "position": dict(position), "learners": values, "files": files}
        _together(ranks, target, lambda: _finish(unfinished, directory, body) if ranks.is_first else None)
    if ranks.is_first:
        _prune(run_directory, step, keep_last)
    return target


def agreed_checkpoint(run_directory: Path, ranks: Ranks) -> Checkpoint | None:
    """Return `latest_checkpoint` of a run as the first rank sees it. Raises CheckpointError on all ranks."""
    found, failure = None, None
    if ranks.is_first:
        try:
            found = latest_checkpoint(run_directory)
        except CheckpointError as error:
            failure = error
    chosen, message = ranks.gather([found and str(found.directory), failure and str(failure)])[0]
    if message is not None:
        raise CheckpointError(message) from failure
    return read_state(Path(chosen))[0] if chosen is not None else None


def restore(checkpoint: Checkpoint, name: str, learner: LearnerBase[Any]) -> None:
    """Put optimizer and counters into a learner made with this part's model and the same settings.

    The learner may be spread over any number of ranks; each reads its own rows.
    """
    optimizer = _optimizer_directory(checkpoint.part_directory(name))
    tensors = read_shards(optimizer, dict(learner.model.named_parameters()))
    learner.load_state_dict(tensors, checkpoint.learner_values[name])


def _together(ranks: Ranks, target: Path, action: Callable[[], Returned]) -> Returned:
    """Run a part of the writing on every rank. If it fails on one, all raise CheckpointError with that rank's reason.

    In an action, collectives must come before anything that can fail on a single rank.
    """
    result: Returned | None = None
    failure: Exception | None = None
    try:
        result = action()
    except Exception as error:  # a full disk shows as OSError, SafetensorError or (tokenizers) a bare Exception
        failure = error
    reasons = ranks.gather(failure and f"{type(failure).__name__}: {failure}")
    reason = next((reason for reason in reasons if reason), None)
    if reason is not None:
        shared = "check that all processes share its file system, " if ranks.size > 1 else ""
        raise CheckpointError(
            f"The checkpoint {target} could not be written ({reason}). Nothing of it was kept, and earlier checkpoints "
            f"are unchanged. Free space on the disk (or make the folder writable), {shared}and run the same command "
            "again to resume from the last checkpoint."
        ) from failure
    return cast("Returned", result)


def _begin(unfinished: ExitStack, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(target.parent)
    return unfinished.enter_context(replace_directory(target))


def _finish(unfinished: ExitStack, directory: Path, body: Mapping[str, object]) -> None:
    body = json.loads(json.dumps(body))  # as read back: string keys, lists for tuples
    text = json.dumps({"body": body, "sha256": json_digest(body)}, indent=1)
    (directory / STATE).write_text(text, encoding="utf-8")
    unfinished.close()


def _optimizer_directory(part: Path) -> Path:
    return part.with_name(f"{part.name}.optimizer")


def _prune(run_directory: Path, step: int, keep_last: int) -> None:
    found = list_checkpoints(run_directory)
    kept = [path for number, path in found if number <= step][: max(keep_last, 1)]
    for _, path in found:
        if path not in kept:
            remove_directory(path)


def _own_checksums(directory: Path, ranks: Ranks) -> dict[str, str]:
    """Return the checksums of this rank's share of all files; hashing takes longest."""
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): file_digest(path) for path in files[ranks.rank :: ranks.size]}
