"""The tracker `tensorboard`: event files that `tensorboard --logdir` shows. Nothing leaves the machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from evoseek.report.tracked import missing_extra
from evoseek.training.context import Context
from evoseek.training.settings import TrackerSettings


class TensorBoardSettings(TrackerSettings):
    """Event files for TensorBoard."""

    name: str = Field(default="tensorboard", description="Name of the tracker.")
    directory: str = Field(
        default="", description="Directory of the event files. Default: `tensorboard` in the run's directory."
    )


class TensorBoard:
    """Writes scalars to event files in a directory. A resumed run adds a file, which is shown as the same record."""

    Settings = TensorBoardSettings

    def __init__(self, directory: Path) -> None:
        """ConfigError if tensorboard is not installed. Nothing is written yet."""
        try:
            from tensorboard.summary import Writer
        except ImportError as error:
            raise missing_extra("tensorboard", error) from error
        self._make, self._directory, self._writer = Writer, directory, None

    @classmethod
    def build(cls, settings: TensorBoardSettings, context: Context) -> TensorBoard:
        """The tracker of a run."""
        return cls(Path(settings.directory or context.run.path / "tensorboard"))

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append the metrics of a step."""
        if self._writer is None:
            self._writer: Any = self._make(str(self._directory))
        for name, value in metrics.items():
            self._writer.add_scalar(name, float(value), step)
        self._writer.flush()

    def close(self) -> None:
        """End the event file."""
        if self._writer is not None:
            self._writer.close()
