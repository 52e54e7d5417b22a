"""The tracker `trackio`: a local database that `trackio show` shows, or a Space of the Hugging Face hub."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from pydantic import Field

from evoseek.errors import ConfigError
from evoseek.report.tracked import missing_extra
from evoseek.training.context import Context
from evoseek.training.settings import TrackerSettings


class TrackioSettings(TrackerSettings):
    """A database of trackio."""

    name: str = Field(default="trackio", description="Name of the tracker.")
    project: str = Field(default="evoseek", description="Name of the project that the run belongs to.")
    run_name: str = Field(default="", description="Name of the run. Default: that of its directory.")
    directory: str = Field(
        default="", description="Directory of the database. Default: trackio's own, or the variable TRACKIO_DIR."
    )
    space: str = Field(
        default="", description="Space of the Hugging Face hub that gets the metrics. Default: none, all stays here."
    )


class Trackio:
    """Logs to a run of trackio; a resumed run continues the record of that name."""

    Settings = TrackioSettings

    def __init__(self, settings: TrackioSettings, run: Path, config: Mapping[str, Any]) -> None:
        """ConfigError if trackio is not installed, or uses another directory already. Nothing is begun yet."""
        if settings.directory:
            os.environ["TRACKIO_DIR"] = settings.directory  # trackio looks there when it is imported
        try:
            import trackio
            from trackio.utils import TRACKIO_DIR
        except ImportError as error:
            raise missing_extra("trackio", error) from error
        if settings.directory and Path(TRACKIO_DIR) != Path(settings.directory):
            raise ConfigError(
                f"The directory of the tracker trackio is {settings.directory}, but this process uses {TRACKIO_DIR} "
                "already, and trackio has one directory a process. Give both trackers the same, or leave it out."
            )
        self._init, self._settings, self._config = trackio.init, settings, config
        self._name = settings.run_name or run.name
        self._run: Any = None

    @classmethod
    def build(cls, settings: TrackioSettings, context: Context) -> Trackio:
        """The tracker of a run."""
        return cls(settings, context.run.path, context.settings.resolved())

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log the metrics of a step; the first begins the run, or continues it."""
        if self._run is None:
            with redirect_stdout(io.StringIO()):  # it prints advice into the progress
                self._run = self._init(
                    self._settings.project,
                    name=self._name,
                    space_id=self._settings.space or None,
                    config=dict(self._config),
                    resume="allow",
                    embed=False,
                    auto_log_gpu=False,
                    auto_log_cpu=False,
                )
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        """Write what is left."""
        if self._run is not None:
            with redirect_stdout(io.StringIO()):
                self._run.finish()
