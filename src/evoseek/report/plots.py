"""The curves of a run as one PNG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from textwrap import wrap
from typing import TYPE_CHECKING

from evoseek.errors import ConfigError
from evoseek.report.metrics import CHARTS, MetricRow, read_metrics
from evoseek.runs import RunDirectory

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROLES = ("proposer", "solver", "")
_TITLE = 34  # characters of a title that fit over a panel


def plot_curves(run: RunDirectory) -> Path:
    """Draw the run's metrics over its steps into its `curves.png` and return the path.

    Raises ConfigError if matplotlib is not installed.
    """
    rows = read_metrics(run.metrics)
    shown = panels(rows)
    columns = 3 if len(shown) <= 6 else 4
    lines = max(1, math.ceil(len(shown) / columns))
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError(
            "Drawing the curves needs matplotlib, which is not installed. Install it with `pip install "
            "'evoseek[report]'`; the numbers themselves are in the run's metrics.jsonl."
        ) from error
    figure = Figure(figsize=(4 * columns, 3 * lines), layout="constrained")
    FigureCanvasAgg(figure)
    for place, (title, curves) in enumerate(shown.items(), start=1):
        axes = figure.add_subplot(lines, columns, place)
        for number, (role, name) in enumerate(curves.items()):
            _draw(axes, *curve(rows, name), label=role, colour=f"C{number}")
        if any(curves):
            axes.legend(fontsize="small")
        axes.set_title("\n".join(wrap(title, _TITLE)))
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
    figure.savefig(run.curves, dpi=100)
    return run.curves


def panels(rows: Sequence[MetricRow]) -> Mapping[str, Mapping[str, str]]:
    """The metrics of each chart that has any values, by role, by the chart's title."""
    measured = {name for row in rows for name, value in row.items() if value is not None}
    charts = (
        (title, {role: full for role in _ROLES if (full := f"{role}/{name}" if role else name) in measured})
        for name, title in CHARTS.items()
    )
    return {title: curves for title, curves in charts if curves}


def curve(rows: Sequence[MetricRow], name: str) -> tuple[list[float], list[float]]:
    """Steps and values of one metric, where it has a value."""
    points = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
    return [step for step, _ in points if step is not None], [value for _, value in points if value is not None]


def smoothed(values: Sequence[float]) -> list[float]:
    """The mean of each value and its neighbours, a tenth of the curve together; empty for a curve of fewer than 20."""
    if len(values) < 20:
        return []
    half = len(values) // 20
    return [fmean(values[max(0, place - half) : place + half + 1]) for place in range(len(values))]


def _draw(axes: Axes, steps: Sequence[float], values: Sequence[float], *, label: str, colour: str) -> None:
    """A curve, and over a long one its smoothed form."""
    smooth, marker = smoothed(values), "." if len(steps) < 40 else ""
    faint = 0.3 if smooth else 1.0
    axes.plot(steps, values, color=colour, marker=marker, alpha=faint, label="" if smooth else label)
    if smooth:
        axes.plot(steps, smooth, color=colour, linewidth=2, label=label)
