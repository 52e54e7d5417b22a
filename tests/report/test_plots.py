import struct
import sys

import pytest

from evoseek.errors import ConfigError
from evoseek.report.metrics import CHARTS, JsonlMetrics
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
    assert list(panels(rows)) == ["Reward", "Invalid rollouts"]
    assert panels([]) == {}
    assert plot_curves(RunDirectory(tmp_path)).read_bytes().startswith(b"\x89PNG")


def test_a_long_curve_is_smoothed_over_a_tenth_of_it():
    """Forty values: each with two before it and two behind it; at the ends with those that there are."""
    values = [float(step % 2) for step in range(40)]
    smooth = smoothed(values)
    assert (smooth[0], smooth[1], smooth[20], smooth[21]) == (1 / 3, 0.5, 0.4, 0.6)
    assert len(smooth) == 40
    assert smoothed(values[:19]) == []


def test_a_chart_has_a_curve_for_each_role_that_was_measured():
    row = {"solver/reward": 0.25, "proposer/reward": 0.5, "selfplay/valid_rate": 0.5, "solver/entropy": None}
    assert panels([{"step": 1.0, **row}]) == {
        "Reward": {"proposer": "proposer/reward", "solver": "solver/reward"},
        "Valid questions": {"": "selfplay/valid_rate"},
    }


def test_the_picture_grows_with_its_charts(tmp_path):
    sizes = []
    for number, charts in enumerate((6, 8)):
        run = RunDirectory(tmp_path / str(number))
        run.path.mkdir()
        for step in range(3):
            JsonlMetrics(run.metrics).write(step, dict.fromkeys(list(CHARTS)[:charts], 0.5))
        sizes.append(struct.unpack(">II", plot_curves(run).read_bytes()[16:24]))
    assert sizes == [(1200, 600), (1600, 600)]


def test_without_matplotlib_it_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r"evoseek\[report\]"):
        plot_curves(RunDirectory(tmp_path))
