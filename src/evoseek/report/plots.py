"""The curves of a run as one PNG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from textwrap import wrap
from typing import TYPE_CHECKING

from evoseek.errors import ConfigError
from evoseek.report.metrics import MetricRow, read_metrics
from evoseek.runs import RunDirectory

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class Panel:
    """Curves in one pair of axes: label -> metric. Stacked ones are shares of one whole."""

    title: str
    curves: Mapping[str, str]
    stacked: bool = False


_PANELS = (
    Panel("Reward", {"": "reward"}),
    Panel("Held-out reward", {"": "eval/reward"}),
    Panel("Searches a rollout", {"": "tools/call_frequency"}),
    Panel("Entropy", {"": "entropy"}),
    Panel("Tokens a rollout", {"": "completions/mean_length"}),
    Panel("Invalid rollouts", {"": "rollout/invalid_frac"}),
)
_SELFPLAY = "selfplay/"
_TITLE = 34  # characters of a title that fit over a panel
_REJECTED = "selfplay/rejected/"


def _of_roles(name: str) -> dict[str, str]:
    return {"proposer": f"proposer/{name}", "solver": f"solver/{name}", "": name}


_SELFPLAY_PANELS = (
    Panel("In-game reward", _of_roles("reward")),
    Panel("Held-out reward", {"": "eval/reward", "alarm": "selfplay/alarm"}),
    Panel("Valid questions", {"not rejected": "selfplay/valid_rate", "true": "selfplay/true_valid_rate"}),
    Panel("Hops (mean)", {"requested": "selfplay/requested_hops/mean", "true": "selfplay/true_hops/mean"}),
    Panel(
        "Hops (entropy, nats)", {"requested": "selfplay/requested_hops/entropy", "true": "selfplay/true_hops/entropy"}
    ),
    Panel("Solver's pass rate", {"": "selfplay/pass_rate/mean"}),
    Panel("Trainable questions", {"": "selfplay/trainable", "agreed, but wrong": "selfplay/agreed_wrong"}),
    Panel("Searches a rollout", _of_roles("tools/call_frequency")),
    Panel("Entropy", _of_roles("entropy")),
    Panel("Tokens a rollout", _of_roles("completions/mean_length")),
    Panel("Invalid rollouts", _of_roles("rollout/invalid_frac")),
    Panel("Topics (entropy, nats)", {"": "selfplay/topics/entropy"}),
    Panel("Duplicate questions", {"": "selfplay/duplicate_rate"}),
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
    shown = panels(rows)
    columns = 3 if len(shown) <= 6 else 4
    lines = max(1, math.ceil(len(shown) / columns))
    figure = Figure(figsize=(4 * columns, 3 * lines), layout="constrained")
    FigureCanvasAgg(figure)
    for place, panel in enumerate(shown, start=1):
        _draw(figure.add_subplot(lines, columns, place), panel, rows)
    figure.savefig(run.curves, dpi=100)
    return run.curves


def panels(rows: Sequence[MetricRow]) -> list[Panel]:
    """The panels of a run: those with any values; of a run that browses or plays with itself, also its own."""
    measured = {name: None for row in rows for name, value in row.items() if value is not None}
    shown = (*_PANELS, *_browsing_panels(measured))
    if any(name.startswith(_SELFPLAY) for name in measured):
        reasons = {name.removeprefix(_REJECTED): name for name in measured if name.startswith(_REJECTED)}
        occurring = {reason: name for reason, name in reasons.items() if _occurs(rows, name)}
        shown = (*_SELFPLAY_PANELS, Panel("Rejected proposals", occurring, True))
    found = (
        Panel(panel.title, {label: name for label, name in panel.curves.items() if name in measured}, panel.stacked)
        for panel in shown
    )
    return [panel for panel in found if panel.curves]


def _browsing_panels(measured: Mapping[str, object]) -> Iterator[Panel]:
    for title, metric in (("Rollouts that browse", "browsing/share"), ("Turns a rollout", "browsing/turns")):
        by_hops = {name.removeprefix(f"{metric}/hops_"): name for name in measured if name.startswith(f"{metric}/")}
        if metric in measured:
            yield Panel(title, {"all": metric, **{f"{hops} hops": by_hops[hops] for hops in sorted(by_hops, key=int)}})


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


def _occurs(rows: Sequence[MetricRow], name: str) -> bool:
    return any(row.get(name) for row in rows)


def _draw(axes: Axes, panel: Panel, rows: Sequence[MetricRow]) -> None:
    names = list(panel.curves.values())
    if panel.stacked:
        whole = [row for row in rows if any(row.get(name) is not None for name in names)]
        shares = [[row.get(name) or 0.0 for row in whole] for name in names]
        axes.stackplot([row["step"] or 0.0 for row in whole], *shares, labels=list(panel.curves))
    else:
        for number, (label, name) in enumerate(panel.curves.items()):
            steps, values = curve(rows, name)
            colour, smooth = f"C{number}", smoothed(values)
            marker = "." if len(steps) < 40 else ""
            axes.plot(
                steps, values, color=colour, marker=marker, alpha=0.3 if smooth else 1.0, label="" if smooth else label
            )
            if smooth:
                axes.plot(steps, smooth, color=colour, linewidth=2, label=label)
    if any(panel.curves):
        axes.legend(fontsize="small")
    axes.set_title("\n".join(wrap(panel.title, _TITLE)))
    axes.set_xlabel("step")
    axes.grid(alpha=0.3)
