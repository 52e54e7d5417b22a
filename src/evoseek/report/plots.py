"""The curves of a run as one PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from evoseek.errors import ConfigError
from evoseek.report.metrics import read_metrics
from evoseek.runs import RunDirectory

_PANELS = (
    ("Reward", "reward"),
    ("Held-out reward", "eval/reward"),
    ("Searches a rollout", "tools/call_frequency"),
    ("Entropy", "entropy"),
    ("Tokens a rollout", "completions/mean_length"),
    ("Invalid rollouts", "rollout/invalid_frac"),
)


def plot_curves(run: RunDirectory) -> Path:
    """Draw the run's metrics over its steps into its `curves.png` and return the path.

    Raises ConfigError if matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError(
            "Drawing the curves needs matplotlib, which is not installed. Install it with `pip install "
            "'evoseek[report]'`; the numbers themselves are in the run's metrics.jsonl."
        ) from error
    rows = read_metrics(run.metrics)
    figure = Figure(figsize=(12, 6), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (title, name) in zip(figure.subplots(2, 3).flat, _PANELS, strict=True):
        steps, values = curve(rows, name)
        axes.plot(steps, values, marker="." if len(steps) < 40 else "")
        axes.set_title(title)
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
    figure.savefig(run.curves, dpi=100)
    return run.curves


def curve(rows: Sequence[dict[str, float | None]], name: str) -> tuple[list[float], list[float]]:
    """Steps and values of one metric, where it has a value."""
    points = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
    return [step for step, _ in points if step is not None], [value for _, value in points if value is not None]
