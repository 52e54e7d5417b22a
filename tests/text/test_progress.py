"""Lines about what takes long."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from evoseek.text import progress
from evoseek.text.progress import CountProgress
from evoseek.training.loop import StepProgress
from evoseek.training.train import TrainingProgress


def lines(monkeypatch: pytest.MonkeyPatch, *reports: tuple[float, int, int]) -> list[str]:
    """What is printed of reports, each with its second, how many are done, and of how many."""
    console, now = Console(file=io.StringIO()), 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with CountProgress(console, "read") as told:
        for second, done, of in reports:
            now = 100 + second
            told(done, of)
    return [line.strip() for line in console.file.getvalue().splitlines()]


def test_there_is_a_line_for_each_tenth(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines(monkeypatch, *((0, done, 20) for done in range(1, 6))) == ["read 2/20", "read 4/20"]
    assert len(lines(monkeypatch, *((0, done, 19) for done in range(1, 20)))) == 10
    assert lines(monkeypatch, *((0, done, 1_000) for done in (0, 64, 128, 192, 256))) == [
        "read 0/1000",
        "read 128/1000",
        "read 256/1000",
    ]
    assert lines(monkeypatch, (0, 0, 1), (0, 0, 1), (0, 1, 1), (0, 1, 1)) == ["read 0/1", "read 1/1"]


def test_there_is_one_after_a_minute_without_any(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = (0, 30, 59, 60, 100, 121)
    assert lines(monkeypatch, *((second, 0, 1) for second in seconds)) == ["read 0/1"] * 3
    assert lines(monkeypatch, *((second, 1 + second, 10_000) for second in seconds)) == [
        "read 61/10000",
        "read 122/10000",
    ]


def test_a_held_out_score_that_is_none_is_left_out() -> None:
    """NaN, where all rollouts were Invalid."""
    told = TrainingProgress(Console(file=(shown := io.StringIO()), width=200))
    for step, score in enumerate((0.5, float("nan"), 0.75)):
        told(StepProgress(step, 9, {"eval/reward": score}, {}))
    lines = shown.getvalue().splitlines()
    assert ["0.500" in lines[0], "nan" in lines[1], "0.500" in lines[1], "0.750" in lines[2]] == [
        True,
        False,
        True,
        True,
    ]
