"""Built-in trackers: the metrics of a run in the formats of other programs."""

from __future__ import annotations

import importlib
import io
import os
import secrets
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from evoseek.assembly.settings import TrackerSettings
from evoseek.errors import ConfigError
from evoseek.storage.files import write_atomic
from evoseek.training.plan import TrainingContext


class TensorBoard:
    """Writes scalars to event files in the run's directory `tensorboard`, for `tensorboard --logdir`. A resumed run
    adds a file to the same record. Nothing leaves the machine."""

    def __init__(self, directory: Path) -> None:
        """Raise ConfigError if tensorboard is not installed. Nothing is written yet."""
        self._make, self._directory, self._writer = _imported("tensorboard.summary").Writer, directory, None

    @classmethod
    def build(cls, settings: TrackerSettings, context: TrainingContext) -> TensorBoard:
        return cls(context.run.path / "tensorboard")

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        if self._writer is None:
            self._writer: Any = self._make(str(self._directory))
        for name, value in metrics.items():
            self._writer.add_scalar(name, float(value), step)
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class ProjectSettings(TrackerSettings):
    """The settings of a tracker with projects."""

    project: str = Field(default="evoseek", description="Project that the run belongs to.")


class Wandb:
    """Logs to a run of wandb with the name of the run's directory, offline unless the variable WANDB_MODE is `online`.
    The directory keeps the record's id, so a resumed run continues the same record (`wandb sync` joins offline
    parts)."""

    Settings: ClassVar[type[TrackerSettings]] = ProjectSettings
    module: ClassVar[str] = "wandb"

    def __init__(self, settings: Any, run: Path, config: Mapping[str, Any]) -> None:
        """Raise ConfigError if the package is not installed. Nothing is begun yet."""
        self._init: Any = _imported(self.module).init
        self._settings, self._directory, self._config = settings, run, config
        self._run: Any = None

    @classmethod
    def build(cls, settings: TrackerSettings, context: TrainingContext) -> Wandb:
        return cls(settings, context.run.path, context.settings.resolved())

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log the metrics of a step; the first call begins or continues the run."""
        if self._run is None:
            common = {"project": self._settings.project, "name": self._directory.name, "resume": "allow"}
            with self._output():
                self._run = self._init(**common, config=dict(self._config), **self._options())
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        if self._run is not None:
            with self._output():
                self._run.finish()

    def _output(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def _options(self) -> dict[str, Any]:
        """Return the arguments of `init` that only this program has."""
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / "wandb_id.txt"
        if not path.exists():
            write_atomic(path, secrets.token_hex(8))
        identifier = path.read_text(encoding="utf-8").strip()
        return {"id": identifier, "dir": str(self._directory), "mode": os.environ.get("WANDB_MODE", "offline")}


class Trackio(Wandb):
    """Logs to trackio, which has wandb's calls: to a local database (in the variable TRACKIO_DIR's folder, if set) for
    `trackio show`, or to the Space of the Hugging Face hub in the variable TRACKIO_SPACE_ID."""

    module = "trackio"

    def _output(self) -> AbstractContextManager[Any]:
        return redirect_stdout(io.StringIO())  # it prints advice over the progress

    def _options(self) -> dict[str, Any]:
        return {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}


def _imported(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise ConfigError(
            f"The tracker {name} needs a package that is not installed ({error}). Install it: pip install "
            "'evoseek[track]'."
        ) from error
