"""The tracker `wandb`: Weights & Biases, by default offline."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from evoseek.files import write_atomic
from evoseek.report.tracked import missing_extra
from evoseek.training.context import Context
from evoseek.training.settings import TrackerSettings


class WandbSettings(TrackerSettings):
    """Weights & Biases."""

    name: str = Field(default="wandb", description="Name of the tracker.")
    project: str = Field(default="evoseek", description="Name of the project that the run belongs to.")
    run_name: str = Field(default="", description="Name of the run. Default: that of its directory.")
    directory: str = Field(default="", description="Directory of wandb's own files. Default: the run's directory.")
    mode: Literal["offline", "online"] = Field(
        default="offline",
        description="Whether metrics are sent at once, or kept in the directory until `wandb sync` sends them.",
    )


class Wandb:
    """Logs to a run of wandb whose id is kept beside its files, so that a resumed run continues the same record (of
    offline parts `wandb sync` makes one)."""

    Settings = WandbSettings

    def __init__(self, settings: WandbSettings, run: Path, config: Mapping[str, Any]) -> None:
        """ConfigError if wandb is not installed. Nothing is begun yet."""
        try:
            import wandb  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise missing_extra("wandb", error) from error
        self._init: Any = wandb.init
        self._settings, self._config, self._name = settings, config, settings.run_name or run.name
        self._directory = Path(settings.directory or run)
        self._run: Any = None

    @classmethod
    def build(cls, settings: WandbSettings, context: Context) -> Wandb:
        """The tracker of a run."""
        return cls(settings, context.run.path, context.settings.resolved())

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log the metrics of a step; the first begins the run, or continues it."""
        if self._run is None:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._run = self._init(
                project=self._settings.project,
                name=self._name,
                id=self._id(),
                resume="allow",
                dir=str(self._directory),
                mode=self._settings.mode,
                config=dict(self._config),
            )
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        """Send or save what is left."""
        if self._run is not None:
            self._run.finish()

    def _id(self) -> str:
        path = self._directory / "wandb_id.txt"
        if not path.exists():
            write_atomic(path, secrets.token_hex(8))
        return path.read_text(encoding="utf-8").strip()
