"""How training goes, step by step: a live bar on a terminal, plain lines anywhere else."""

from __future__ import annotations

from time import monotonic
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from evoseek.systems.training import Progress


class TrainingProgress:
    """A context manager to be called after every step. `seconds` is the time limit of the run, if it has one."""

    def __init__(self, console: Console, *, seconds: float | None = None) -> None:
        self._console = console
        self._seconds = seconds
        self._bar = Bar(
            TextColumn("step"), MofNCompleteColumn(), BarColumn(), TextColumn("{task.description}"), console=console
        )
        self._task = self._bar.add_task("", total=None)
        self._began = monotonic()
        self._first_step: int | None = None
        self._held_out: float | None = None

    def __enter__(self) -> TrainingProgress:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._bar.stop()

    def __call__(self, progress: Progress) -> None:
        """Show one step."""
        if self._first_step is None:
            self._first_step = progress.step - 1
        self._held_out = progress.metrics.get("eval/reward", self._held_out)
        text = self.describe(progress)
        if self._console.is_terminal:
            self._bar.update(self._task, completed=progress.step, total=progress.steps, description=text)
        else:
            self._console.print(f"step {progress.step}/{progress.steps}  {text}", highlight=False, soft_wrap=True)

    def describe(self, progress: Progress) -> str:
        """The numbers to watch, in one line; what a step did not measure is left out."""
        metrics, timings = progress.metrics, progress.timings
        parts = [
            f"{label} {source[name]:{form}}{unit}"
            for label, source, name, form, unit in (
                ("reward", metrics, "reward", ".3f", ""),
                ("invalid", metrics, "rollout/invalid_frac", ".1%", ""),
                ("rollout", timings, "rollout/tokens_per_s", ".0f", " tok/s"),
                ("tool", timings, "tools/latency_s", ".4f", " s"),
            )
            if name in source
        ]
        if self._held_out is not None:
            parts.insert(1, f"held-out {self._held_out:.3f}")
        if progress.step:
            parts.append(f"left {self._time_left(progress):.0f} s")
        return "  ".join(parts)

    def _time_left(self, progress: Progress) -> float:
        elapsed = monotonic() - self._began
        done = max(progress.step - (self._first_step or 0), 1)
        left = elapsed / done * (progress.steps - progress.step)
        return left if self._seconds is None else max(min(left, self._seconds - elapsed), 0.0)
