import sys

import pytest

from evoseek.errors import ConfigError
from evoseek.report.metrics import JsonlMetrics
from evoseek.report.plots import curve, plot_curves
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


def test_without_matplotlib_it_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r"evoseek\[report\]"):
        plot_curves(RunDirectory(tmp_path))
