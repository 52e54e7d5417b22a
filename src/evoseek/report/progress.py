"""The progress of training, step by step: a live bar on a terminal, plain lines anywhere else."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from evoseek.training.loop import Progress

STOPPING = "Stopping after this step; its checkpoint is saved. Press Ctrl-C again to abort at once."
STOPPING_AFTER_BATCH = "Stopping after this batch. Press Ctrl-C again to abort at once: what is written stays."

_BARS = "▁▂▃▄▅▆▇█"
_CURVE = 12  # held-out scores that are shown
_SILENT_S = 60.0  # seconds after which there is a line about what takes long


class LiveProgress:
    """A context manager that shows how many of something are done. The bar appears with the first report, so that there
    may be another one before."""

    def __init__(self, console: Console, noun: str) -> None:
        self._console, self._noun = console, noun
        self._bar = Bar(
            TextColumn(noun, markup=False),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.description}", markup=False),
            console=console,
        )
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._bar.stop()

    def show(self, done: int, total: int, text: str) -> None:
        """Report how many are done, with a line of details."""
        if self._console.is_terminal:
            self._bar.start()
            self._bar.update(self._task, completed=done, total=total, description=text)
        else:
            line = f"{self._noun} {done}/{total}  {text}"
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def curve(values: Sequence[float]) -> str:
    """The last values as a curve of bars, from 0 (or less) to 1 (or more)."""
    last = values[-_CURVE:]
    return "".join(_BARS[min(max(round(value * (len(_BARS) - 1)), 0), len(_BARS) - 1)] for value in last)


class TrainingProgress(LiveProgress):
    """To be called after every step. `max_seconds` is the training loop's limit."""

    def __init__(self, console: Console, *, max_seconds: float = math.inf) -> None:
        super().__init__(console, "step")
        self._max_seconds = max_seconds
        self._seconds = 0.0
        self._steps = 0
        self._held_out: list[float] = []

    def __call__(self, progress: Progress) -> None:
        """Show one step."""
        if "step/seconds" in progress.timings:
            self._seconds += progress.timings["step/seconds"]
            self._steps += 1
        if math.isfinite(score := progress.metrics.get("eval/reward", math.nan)):  # NaN: all rollouts were Invalid
            self._held_out.append(score)
        self.show(progress.step, progress.steps, self.describe(progress))

    def describe(self, progress: Progress) -> str:
        """The numbers to watch, in one line; numbers that a step did not measure are left out."""
        metrics, timings = progress.metrics, progress.timings
        solver = "" if "rollout/stop/answered" in metrics else "solver/"
        learnt = "loss" if "demonstrations/num" in metrics else ""
        parts = [
            f"{label} {source[name]:{form}}{unit}"
            for label, source, name, form, unit in (
                ("loss", metrics, learnt, ".3f", ""),
                ("held-out loss", metrics, "eval/loss", ".3f", ""),
                ("reward", metrics, "reward", ".3f", ""),
                ("solver", metrics, "solver/reward", ".3f", ""),
                ("proposer", metrics, "proposer/reward", ".3f", ""),
                ("valid", metrics, "selfplay/valid_rate", ".1%", ""),
                ("answered", metrics, f"{solver}rollout/stop/answered", ".0%", ""),
                ("malformed", metrics, f"{solver}rollout/stop/malformed", ".0%", ""),
                ("cut off", metrics, f"{solver}rollout/stop/max_tokens", ".0%", ""),
                ("invalid", metrics, "rollout/invalid_frac", ".1%", ""),
                ("rollout", timings, "rollout/tokens_per_s", ".0f", " tok/s"),
                ("tool", timings, "tools/latency_s", ".4f", " s"),
            )
            if name in source
        ]
        if self._held_out:
            parts.insert(1, f"held-out {curve(self._held_out)} {self._held_out[-1]:.3f}")
        if progress.stage:
            parts.insert(0, f"stage {progress.stage}")
        if self._steps:
            parts.append(f"left {self._time_left(progress):.0f} s")
        return "  ".join(parts)

    def _time_left(self, progress: Progress) -> float:
        left = self._seconds / self._steps * (progress.steps - progress.step)
        return max(min(left, self._max_seconds - self._seconds), 0.0)


class CountProgress(LiveProgress):
    """To be called after each of many items, or of some of them; without a terminal it prints a line for each tenth of
    them, and after a minute without one."""

    _last, _shown = -1, 0.0

    def __call__(self, done: int, of: int, text: str = "") -> None:
        """Show how many are done, with a line of details."""
        tenth, now = max(1, of // 10), time.monotonic()
        is_tenth = done != self._last and (done in (0, of) or done // tenth > max(self._last, 0) // tenth)
        self._last, self._shown = done, self._shown or now
        if is_tenth or now - self._shown >= _SILENT_S or self._console.is_terminal:
            self.show(done, of, text)
            self._shown = now
