"""A run directory: where everything of one training run lies, and who may write there.

    run/
      config.json         the resolved config, as it was when the run began
      metrics.jsonl       a row a step: numbers that follow from the config alone
      timings.jsonl       a row a step: seconds and rates
      trajectories.jsonl  every rollout
      questions.jsonl     the questions that self-play wrote
      checkpoints/        step-000010/, ...: complete or absent
      curves.png          the picture
      non_finite.json     the last batch of a run that ended for losses or gradients that were not finite
      lock                held by the process that writes here

The .jsonl files only ever grow. A checkpoint records their lengths; going back to it cuts them to those lengths.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from evoseek.errors import ConfigError, RunError, RunLockedError
from evoseek.files import write_atomic


class RunDirectory:
    """The layout of one run. Nothing is made or written before the directory is locked."""

    def __init__(self, path: Path):
        self.path = path
        self.config = path / "config.json"
        self.metrics = path / "metrics.jsonl"
        self.timings = path / "timings.jsonl"
        self.trajectories = path / "trajectories.jsonl"
        self.questions = path / "questions.jsonl"
        self.curves = path / "curves.png"
        self.dump = path / "non_finite.json"
        self._logs = (self.metrics, self.timings, self.trajectories, self.questions)

    @contextmanager
    def locked(self) -> Generator[None]:
        """Hold the directory, made if need be, while the block runs. The kernel drops the lock when the process ends,
        however it ends.

        Raises RunLockedError, which names the process that holds it, or RunError if the directory cannot be written or
        holds something else than a run.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._refuse_foreign()
            descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise RunError(
                f"The run directory {self.path} cannot be used ({error.strerror}). Give a directory that this user may "
                "write to with --run-dir."
            ) from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                holder = os.read(descriptor, 32).decode().strip() or "unknown"
                raise RunLockedError(
                    f"The run directory {self.path} is in use by another process (pid {holder}). Two processes cannot "
                    "train into one directory: wait for it to end, stop it, or give another --run-dir."
                ) from error
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            yield
        finally:
            os.close(descriptor)

    def _refuse_foreign(self) -> None:
        """A run is known by its lock, or its checkpoints if the lock was removed. Hidden files do not count."""
        if (self.path / "lock").is_file() or any(self.path.glob("checkpoints/step-*")):
            return
        names = sorted(entry.name for entry in self.path.iterdir() if not entry.name.startswith("."))
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise RunError(
                f"The folder {self.path.absolute()} cannot be a run directory: it holds {names[0]}{more}, "
                "and no run. Expected a folder that is new, empty or already holds a run. Give another one."
            )

    def claim(self, config: Mapping[str, object], *, may_differ: Collection[str] = ()) -> None:
        """Save the resolved config of a new run, or check that an old run had the same one.

        `may_differ` names dotted keys that a resumed run may change. Raises ConfigError naming every other key that
        differs.
        """
        if self.config.exists():
            changed = changes(self.read_config(), config, may_differ)
            if changed:
                raise ConfigError(
                    f"The run in {self.path} was begun with another config and can only be resumed with the same "
                    f"one: {changed}. Restore these settings, or give another --run-dir for a new run."
                )
        write_atomic(self.config, json.dumps(config, indent=2, sort_keys=True) + "\n")

    def read_config(self) -> dict[str, object]:
        """The resolved config that was saved here. Raises RunError if there is none or it is damaged."""
        try:
            return json.loads(self.config.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise RunError(
                f"{self.path} holds no run: there is no config.json in it. Give the directory of a run that "
                "`evoseek train` or `evoseek demo` made."
            ) from error
        except ValueError as error:
            raise RunError(
                f"{self.config} is damaged ({error}). Restore it from a copy, or begin a new run in another directory."
            ) from error

    def positions(self) -> dict[str, int]:
        """Lengths in bytes of the growing files, for a checkpoint. What they hold is on the disk afterwards."""
        lengths: dict[str, int] = {}
        for log in self._logs:
            if not log.exists():
                lengths[log.name] = 0
                continue
            with log.open("rb") as file:
                os.fsync(file.fileno())
                lengths[log.name] = os.fstat(file.fileno()).st_size
        return lengths

    def rewind(self, positions: Mapping[str, int]) -> None:
        """Cut the growing files to recorded lengths (0 where none was recorded).

        Raises RunError if a file is shorter than recorded, since rows are then missing that no resume can bring back.
        """
        for log in self._logs:
            length, recorded = log.stat().st_size if log.exists() else 0, positions.get(log.name, 0)
            if length < recorded:
                raise RunError(
                    f"{log} holds {length} bytes, but the checkpoint was saved when it held {recorded}: rows were "
                    "removed. Restore the file from a copy, or begin a new run in another directory."
                )
            if length > recorded:
                os.truncate(log, recorded)


def changes(before: Mapping[str, object], now: Mapping[str, object], may_differ: Collection[str] = ()) -> str:
    """What differs between two configs, in words; "" if nothing does but for the dotted keys in `may_differ`."""
    saved, given = flatten(before), flatten(now)
    keys = sorted(
        key for key in saved.keys() | given.keys() if saved.get(key) != given.get(key) and key not in may_differ
    )
    return "; ".join(f"{key} was {saved.get(key)!r}, now {given.get(key)!r}" for key in keys)


def flatten(tree: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Nested mappings as one mapping with dotted keys."""
    flat: dict[str, object] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
