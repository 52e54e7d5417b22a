"""Checkpoints: complete or absent, checked when read, nothing pickled.

run/checkpoints/step-000010/
    policy/                  a plain `from_pretrained` directory
    optimizer.safetensors    the optimizer's tensors, named <parameter>/<key>
    state.json               counters, the caller's position (step, data order, file lengths, random states), and
                             the SHA-256 of every other file and of itself
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import load_file, save_file

from evoseek.errors import CheckpointError
from evoseek.files import remove_directory, remove_leftovers, replace_directory
from evoseek.learner.learner import Learner

FORMAT = 1

_POLICY, _OPTIMIZER, _STATE = "policy", "optimizer.safetensors", "state.json"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A verified checkpoint on disk. Load the policy from `policy`, make a Learner for it, then `restore` it."""

    directory: Path
    step: int
    position: Mapping[str, object]
    learner_values: Mapping[str, object]

    @property
    def policy(self) -> Path:
        """The policy's `from_pretrained` directory."""
        return self.directory / _POLICY

    def restore(self, learner: Learner) -> None:
        """Put the optimizer and counters into a learner made with this checkpoint's policy and the same settings."""
        learner.load_state_dict(load_file(self.directory / _OPTIMIZER), self.learner_values)


def save_checkpoint(
    run_directory: Path,
    *,
    step: int,
    policy_saver: Callable[[Path], None],
    learner: Learner,
    position: Mapping[str, object],
    keep_last: int = 3,
) -> Path:
    """Write `checkpoints/step-<step>` and return it; of the earlier ones keep those that make `keep_last` in all.

    `policy_saver` writes the policy into the directory it is given; `position` is any JSON the caller needs to go on.
    Checkpoints of later steps are removed: a resume has passed them over as damaged. Only one process may write to a
    run. Raises CheckpointError if it cannot be written (a full disk): nothing of it is then visible and earlier
    checkpoints are untouched.
    """
    parent = run_directory / "checkpoints"
    target = parent / f"step-{step:06d}"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(parent)
        with replace_directory(target) as directory:
            _write(directory, step, policy_saver, learner, position)
    except Exception as error:  # a full disk shows as OSError, SafetensorError or (tokenizers) a bare Exception
        raise CheckpointError(
            f"The checkpoint {target} could not be written ({type(error).__name__}: {error}). Nothing of it was kept "
            "and earlier checkpoints are unchanged. Free space on the disk (or make the folder writable) and run the "
            "same command again: it resumes from the last checkpoint."
        ) from error
    _prune(run_directory, step, keep_last)
    return target


def load_checkpoint(directory: Path) -> Checkpoint:
    """Read and verify one checkpoint. Raises CheckpointError if anything in it is missing or altered."""
    try:
        state = json.loads((directory / _STATE).read_text(encoding="utf-8"))
        body, checksum = state["body"], state["sha256"]
        if checksum != _checksum_json(body):
            raise _damaged(directory, f"{_STATE} does not match its own checksum")
        for name, expected in body["files"].items():
            if _checksum(directory / name) != expected:
                raise _damaged(directory, f"{name} does not match its checksum")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(directory, str(error)) from error
    if body["format"] != FORMAT:
        raise _damaged(directory, f"its format is {body['format']}, this version of evoseek reads {FORMAT}")
    return Checkpoint(directory, body["step"], body["position"], body["learner"])


def latest_checkpoint(run_directory: Path) -> Checkpoint | None:
    """The newest checkpoint of a run that is whole, or None if the run has none.

    A damaged one is passed over with a warning. Raises CheckpointError if there are checkpoints but all are damaged.
    """
    found = _list_checkpoints(run_directory)
    for _, directory in found:
        try:
            return load_checkpoint(directory)
        except CheckpointError as error:
            warnings.warn(f"{error} Going back to the checkpoint before it.", stacklevel=2)
    if found:
        raise CheckpointError(
            f"None of the {len(found)} checkpoints in {run_directory / 'checkpoints'} is whole. Restore one from a "
            "copy, or delete that folder to start the run from the beginning."
        )
    return None


def _write(
    directory: Path,
    step: int,
    policy_saver: Callable[[Path], None],
    learner: Learner,
    position: Mapping[str, object],
) -> None:
    policy_saver(directory / _POLICY)
    tensors, values = learner.state_dict()
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, directory / _OPTIMIZER)
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    body = {
        "format": FORMAT,
        "step": step,
        "position": dict(position),
        "learner": values,
        "files": {path.relative_to(directory).as_posix(): _checksum(path) for path in files},
    }
    body = json.loads(json.dumps(body))  # as it will be read: string keys, lists for tuples
    text = json.dumps({"body": body, "sha256": _checksum_json(body)}, indent=1)
    (directory / _STATE).write_text(text, encoding="utf-8")


def _prune(run_directory: Path, step: int, keep_last: int) -> None:
    found = _list_checkpoints(run_directory)
    kept = [path for number, path in found if number <= step][: max(keep_last, 1)]
    for _, path in found:
        if path not in kept:
            remove_directory(path)


def _list_checkpoints(run_directory: Path) -> list[tuple[int, Path]]:
    """(step, directory) of all checkpoints, newest first."""
    paths = (run_directory / "checkpoints").glob("step-*")
    numbered = [(int(path.name[5:]), path) for path in paths if path.name[5:].isdecimal()]
    return sorted(numbered, reverse=True)


def _damaged(directory: Path, why: str) -> CheckpointError:
    return CheckpointError(f"The checkpoint {directory} is damaged: {why}. Expected it as it was written; delete it.")


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checksum_json(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
