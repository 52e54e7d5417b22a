"""The progress of training, step by step."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console

from evoseek.text.progress import LiveProgress
from evoseek.training.loop import Progress

_BARS = "▁▂▃▄▅▆▇█"
_CURVE = 12  # held-out scores that are shown


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
