"""A run directory: the files of one training run, and the lock that protects them.

    run/
      config.json         the resolved config, as it was when the run began
      inputs.json         the files that it reads, and the digests of their contents at that time
      project.json        the settings of the project file at that time, for a run in a project
      metrics.jsonl       a row a step: numbers that depend on the config alone
      timings.jsonl       a row a step: seconds and rates
      trajectories.jsonl  every rollout
      samples.jsonl       the advantages of every rollout that was trained on
      questions.jsonl     the questions that self-play wrote
      feedback_questions.jsonl   the questions that were added from people's feedback when the run began
      cold_start/         the questions and demonstrations that it began with (`evoseek.training.cold_start`)
      checkpoints/        step-000010/, ...: complete or absent
      stopped.txt         why the run ended before its last step, if its process could write this
      non_finite.json     the last batch of a run that ended because of non-finite losses or gradients
      review.jsonl        the verdicts of a person on its questions (`evoseek.curation.reviewing`)
      lock                held by the process that writes here

The .jsonl files, `RunDirectory.logs`, only ever grow. A checkpoint records their lengths; going back to it cuts them
to those lengths (`evoseek.training.loop`).
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from evoseek.errors import ConfigError, RunError, RunLockedError, disk_text
from evoseek.storage.checkpoints import list_checkpoints
from evoseek.storage.files import json_digest, remove_leftovers, write_atomic
from evoseek.storage.removed_settings import in_settings_of_today


@dataclass(frozen=True, slots=True)
class Input:
    """A file or folder that a run reads, and the digest of its contents, which identifies it at any path."""

    path: str
    sha256: str


class RunDirectory:
    """The layout of one run. Nothing is created or written before the directory is locked. `project` are the settings
    of the project file by dotted names. `claim` records them, to detect later edits of that file."""

    def __init__(self, path: Path, project: Mapping[str, object] | None = None):
        self.path = path
        self._project = project
        self.config = path / "config.json"
        self.inputs = path / "inputs.json"
        self.project = path / "project.json"
        self.metrics = path / "metrics.jsonl"
        self.timings = path / "timings.jsonl"
        self.trajectories = path / "trajectories.jsonl"
        self.samples = path / "samples.jsonl"
        self.questions = path / "questions.jsonl"
        self.feedback = path / "feedback_questions.jsonl"
        self.held_out = path / "cold_start" / "held_out.jsonl"
        self.dump = path / "non_finite.json"
        self.stopped = path / "stopped.txt"
        self.logs = (self.metrics, self.timings, self.trajectories, self.samples, self.questions)

    @contextmanager
    def locked(self) -> Generator[None]:
        """Lock the directory while the block runs; it is created if needed. The kernel releases the lock when the
        process ends, however it ends.

        Raises RunLockedError, which names the process that holds it, or RunError if the directory cannot be written or
        contains something other than a run.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._refuse_foreign()
            descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise RunError(
                disk_text(error, f"The run directory {self.path} cannot be used"), code="disk.failed"
            ) from error
        try:
            try:
                _lock(descriptor)
            except OSError as error:
                holder = os.read(descriptor, 32).decode().strip() or "unknown"
                raise RunLockedError(
                    f"The run directory {self.path} is in use by another process (pid {holder}). Two processes cannot "
                    "train into one directory: wait for it to end, stop it, or give another --run-dir."
                ) from error
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            remove_leftovers(self.path)
            remove_leftovers(self.path / "checkpoints")
            yield
        finally:
            os.close(descriptor)

    def holder(self) -> str | None:
        """Return the process that holds the directory, or None. The lock is taken only for an instant."""
        try:
            descriptor = os.open(self.path / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return os.read(descriptor, 32).decode().strip() or "unknown"
        finally:
            os.close(descriptor)
        return None

    def check(self) -> None:
        """Raise RunError if the folder contains anything other than a run. Call this before it is created or locked."""
        if self.path.is_dir():
            self._refuse_foreign()
        elif self.path.exists():
            raise RunError(f"{self.path} is a file, not a run directory. Give a directory with --run-dir.")

    def _refuse_foreign(self) -> None:
        """Raise RunError for a folder without lock and checkpoints that is not empty. Hidden files do not count."""
        if (self.path / "lock").is_file() or any(self.path.glob("checkpoints/step-*")):
            return
        names = sorted(entry.name for entry in self.path.iterdir() if not entry.name.startswith("."))
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise RunError(
                f"The folder {self.path.absolute()} cannot be a run directory: it holds {names[0]}{more}, "
                "but no run. Expected a folder that is new, empty or already holds a run. Give another one.",
                code="run.foreign_folder",
            )

    @property
    def is_begun(self) -> bool:
        """Whether anything was trained with the settings saved here."""
        return self.config.exists() and bool(list_checkpoints(self.path))

    def forget_trackers(self) -> None:
        """Let trackers record the steps of a run that starts again, as a new run."""
        shutil.rmtree(self.path / "trackers", ignore_errors=True)
        (self.path / "wandb_id.txt").unlink(missing_ok=True)

    def claim(
        self,
        config: Mapping[str, object],
        inputs: Mapping[str, Input] | None = None,
        *,
        may_differ: Collection[str] = (),
        defaults: Mapping[str, object] | None = None,
        is_dry: bool = False,
    ) -> None:
        """Save the resolved config and inputs of a new run, or check that an old run had the same. With `is_dry`, only
        check.

        A run without a checkpoint starts again, with any settings: nothing would be resumed with them. `may_differ`
        names dotted keys, or patterns, that a resumed run may change. `defaults` are the values of settings that the
        old run lacks because a later version added them. `inputs` are files and folders by the dotted keys that name
        them: their paths may differ if the contents are the same. Raises ConfigError naming every other key and every
        input that differs; RunError for checkpoints without a config.
        """
        inputs = inputs or {}
        if not self.config.exists() and any(self.path.glob("checkpoints/step-*")):
            raise RunError(
                f"{self.path} has checkpoints, but no config.json, so their settings are unknown. "
                "Restore it from a copy, or give another --run-dir for a new run.",
                code="run.config_missing",
            )
        if self.is_begun:
            before = self.read_inputs()
            known = inputs.keys() & before.keys()
            changed = changes(self.read_config(), config, {*may_differ, *known}, defaults or {})
            if changed:
                raise ConfigError(
                    f"The run in {self.path} was begun with another config and can only be resumed with the same "
                    f"one: {changed}. Restore these settings. {self._onwards('with other ones')}"
                    + (" Changes during a run must be declared in [[stages]] when it begins." * ("stages" in config)),
                    code="run.other_config",
                )
            self._check_inputs({key: (before[key], inputs[key]) for key in sorted(known)})
        if is_dry:
            return
        body = {key: asdict(found) for key, found in inputs.items()}
        _write_json(self.inputs, {"inputs": body, "sha256": json_digest(body)})
        _write_json(self.config, config)
        if self._project is not None:  # last: an edit counts as an edit until it is in the config
            _write_json(self.project, self._project)

    def _check_inputs(self, pairs: Mapping[str, tuple[Input, Input]]) -> None:
        other = [
            f"{key} was {was.path} (SHA-256 {was.sha256[:12]}), now {now.path} holds something else ({now.sha256[:12]})"
            for key, (was, now) in pairs.items()
            if was.sha256 != now.sha256
        ]
        if other:
            raise ConfigError(
                f"The run in {self.path} was begun with other contents of its input files and can only be resumed "
                f"with the same: {'; '.join(other)}. Restore the old files (their paths may differ). "
                f"{self._onwards('with the new contents')}",
                code="run.other_inputs",
            )

    def _onwards(self, how: str) -> str:
        """Return how to continue training if the run cannot be resumed."""
        return (
            f"To continue {how}, begin a new run with this run's policy and a new optimizer: `--model {self.path} "
            "--run-dir NEW`."
        )

    def read_inputs(self) -> dict[str, Input]:
        """Read the recorded inputs; empty for a run of an earlier version. Raises RunError for a damaged record."""
        if not self.inputs.exists():
            return {}
        try:
            found = json.loads(self.inputs.read_text(encoding="utf-8"))
            body = found["inputs"]
            if found["sha256"] != json_digest(body):
                raise ValueError("it does not match its own checksum")
            return {key: Input(**value) for key, value in body.items()}
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise RunError(
                f"{self.inputs} is damaged ({error}), so the original inputs of the run are unknown. Restore it from a "
                "copy, or remove it if you are sure that no input of the run has changed.",
                code="run.inputs_damaged",
            ) from error

    def read_project(self) -> dict[str, object] | None:
        """Read the settings that the project file gave the run when it began; None if not recorded. Raises RunError if
        the record is damaged."""
        try:
            return dict(json.loads(self.project.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise RunError(
                f"{self.project} is damaged ({error}), so edits of evoseek.toml since the run was begun cannot be "
                f"detected. Remove it, and resume with `evoseek train --run-dir {self.path}`."
            ) from error

    @property
    def saved_steps(self) -> tuple[int, ...]:
        """The steps of the checkpoints, in order. A folder in which nothing was saved has none."""
        found = (state.parent.name.removeprefix("step-") for state in self.path.glob("checkpoints/step-*/state.json"))
        return tuple(sorted(int(step) for step in found if step.isdecimal()))

    def read_config(self) -> dict[str, object]:
        """Read the resolved config that was saved here. Raises RunError if there is none or it is damaged."""
        try:
            return in_settings_of_today(json.loads(self.config.read_text(encoding="utf-8")))
        except FileNotFoundError as error:
            raise RunError(
                f"{self.path} holds no run: there is no config.json in it. Give the directory of a run that "
                "`evoseek train` or `evoseek demo` made.",
                code="run.missing",
            ) from error
        except (OSError, ValueError, AttributeError, RecursionError) as error:
            raise RunError(
                f"{self.config} is damaged ({error}). Restore it from a copy, or begin a new run in another directory.",
                code="run.config_damaged",
            ) from error


def with_digests(config: Mapping[str, object], inputs: Mapping[str, Input]) -> dict[str, object]:
    """Replace the names of inputs in settings by the digests of their contents, for comparisons."""
    tree = {key: dict(value) if isinstance(value, Mapping) else value for key, value in config.items()}
    for dotted, found in inputs.items():
        section, _, key = dotted.partition(".")
        table = tree.get(section)
        if isinstance(table, dict) and key in table:
            table[key] = {"sha256": found.sha256}
    return tree


def _write_json(path: Path, value: Mapping[str, object]) -> None:
    write_atomic(path, json.dumps(value, indent=2, sort_keys=True, default=str) + "\n")


def changes(
    before: Mapping[str, object],
    now: Mapping[str, object],
    may_differ: Collection[str] = (),
    defaults: Mapping[str, object] | None = None,
) -> str:
    """Describe the differences between two configs; "" if there are none except in the dotted keys of `may_differ`,
    which may be patterns. Settings missing in `before` have their values of `defaults`."""
    given = flatten(now)
    usual = {key: value for key, value in flatten(defaults or {}).items() if key in given}
    saved = usual | flatten(in_settings_of_today(before))
    differing = (key for key in sorted(saved.keys() | given.keys()) if saved.get(key) != given.get(key))
    keys = [key for key in differing if not any(fnmatchcase(key, pattern) for pattern in may_differ)]
    return "; ".join(f"{key} was {saved.get(key)!r}, now {given.get(key)!r}" for key in keys)


def flatten(tree: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Flatten nested mappings into one mapping with dotted keys."""
    flat: dict[str, object] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _lock(descriptor: int) -> None:
    """Lock the file. Raises OSError if another process holds it for longer than `RunDirectory.holder` does."""
    for tries_left in reversed(range(5)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError:
            if not tries_left:
                raise
            time.sleep(0.02)
