import struct
import sys

import pytest

from evoseek.errors import ConfigError
from evoseek.report.metrics import JsonlMetrics
from evoseek.report.plots import curve, panels, plot_curves, smoothed
from evoseek.runs import RunDirectory


def test_a_picture_of_the_run(tmp_path):
    run = RunDirectory(tmp_path)
    sink = JsonlMetrics(run.metrics)
    for step in range(5):
        sink.write(step, {"reward": step / 5, "entropy": float("nan")})
    assert plot_curves(run).read_bytes().startswith(b"\x89PNG")


def test_curves_skip_what_has_no_value():
    rows = [{"step": 1.0, "reward": 0.5}, {"step": 2.0}, {"step": 3.0, "reward": None}, {"step": 4.0, "reward": 1.0}]
    assert curve(rows, "reward") == ([1.0, 4.0], [0.5, 1.0])


def test_a_run_has_the_panels_that_were_measured_and_none_that_is_empty(tmp_path):
    rows = [{"step": 1.0, "reward": 0.5, "entropy": None, "rollout/invalid_frac": 0.0}]
    assert [panel.title for panel in panels(rows)] == ["Reward", "Invalid rollouts"]
    assert panels([]) == []
    assert plot_curves(RunDirectory(tmp_path)).read_bytes().startswith(b"\x89PNG")


def test_a_long_curve_is_smoothed_over_a_tenth_of_it():
    """Forty values: each with two before it and two behind it; at the ends with those that there are."""
    values = [float(step % 2) for step in range(40)]
    smooth = smoothed(values)
    assert (smooth[0], smooth[1], smooth[20], smooth[21]) == (1 / 3, 0.5, 0.4, 0.6)
    assert len(smooth) == 40
    assert smoothed(values[:19]) == []


def test_a_run_that_browses_shows_how_by_hops():
    row = {"browsing/share": 0.5, "browsing/share/hops_2": 0.75, "browsing/share/hops_1": 0.25, "browsing/turns": 3.0}
    shown = {panel.title: panel.curves for panel in panels([{"step": 1.0, **row}])}
    assert list(shown["Rollouts that browse"].items()) == [
        ("all", "browsing/share"),
        ("1 hops", "browsing/share/hops_1"),
        ("2 hops", "browsing/share/hops_2"),
    ]
    assert shown["Turns a rollout"] == {"all": "browsing/turns"}


SELFPLAY = [
    {
        "step": 1.0,
        "solver/reward": 0.25,
        "proposer/reward": 0.5,
        "selfplay/valid_rate": 0.5,
        "selfplay/true_hops/0": 0.0,
    }
    | {"selfplay/rejected/no_answer": 0.25, "selfplay/rejected/ambiguous": 0.0, "selfplay/rejected/too_long": 0.25},
    {"step": 2.0, "solver/reward": 0.5, "selfplay/valid_rate": 1.0, "selfplay/true_valid_rate": None}
    | {"selfplay/rejected/no_answer": 0.0, "selfplay/rejected/ambiguous": 0.0, "selfplay/rejected/too_long": 0.0},
    {"step": 2.0, "eval/reward": 0.5, "eval/reward/hops_1": 0.5},
]


def test_self_play_shows_what_was_measured():
    shown = {panel.title: panel.curves for panel in panels(SELFPLAY)}
    assert shown == {
        "In-game reward": {"proposer": "proposer/reward", "solver": "solver/reward"},
        "Held-out reward": {"": "eval/reward"},
        "Valid questions": {"not rejected": "selfplay/valid_rate"},
        "Rejected proposals": {"no_answer": "selfplay/rejected/no_answer", "too_long": "selfplay/rejected/too_long"},
    }
    assert [panel.title for panel in panels(SELFPLAY) if panel.stacked] == ["Rejected proposals"]


def test_no_panel_of_rejections_where_there_were_none():
    assert [panel.title for panel in panels(SELFPLAY[1:])] == ["In-game reward", "Held-out reward", "Valid questions"]


def test_a_picture_of_self_play_grows_with_its_panels(tmp_path):
    names = [name for panel in panels(SELFPLAY) for name in panel.curves.values()]
    more = ["entropy", "selfplay/pass_rate/mean", "selfplay/topics/entropy", "selfplay/duplicate_rate"]
    sizes = []
    for number, known in enumerate((names, names + more)):
        run = RunDirectory(tmp_path / str(number))
        run.path.mkdir()
        for step in range(3):
            JsonlMetrics(run.metrics).write(step, dict.fromkeys(known, 0.5))
        sizes.append(struct.unpack(">II", plot_curves(run).read_bytes()[16:24]))
    assert sizes == [(1200, 600), (1600, 600)]


def test_without_matplotlib_it_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r"evoseek\[report\]"):
        plot_curves(RunDirectory(tmp_path))
