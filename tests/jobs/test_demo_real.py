"""The time that the demonstration with a real model gives itself."""

import json

import pytest

from evoseek.jobs.demo_real import first_seconds, minutes_left


def test_both_measurements_and_the_warm_start_are_taken_from_the_time():
    # 41 minutes less 8 of warm start, 3 of the first measurement and 1.75 times 3 of the second
    assert minutes_left(41, training=480, measuring=180) == pytest.approx(41 - 8 - 3 - 5.25)


def test_there_is_a_moment_left_where_nothing_is():
    assert minutes_left(5, training=600, measuring=60) == 0.05


def test_the_first_measurement_counts(tmp_path):
    path = tmp_path / "measuring.json"
    assert first_seconds(path, 12.5) == 12.5
    assert first_seconds(path, 99.0) == 12.5


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"seconds": -500}', '{"seconds": NaN}', '{"seconds": 1e999}', '{"seconds": "x"}',
             '{"seconds": 1' + "0" * 400 + "}", "[" * 100_000]
)  # fmt: skip
def test_a_damaged_file_is_written_anew(text, tmp_path):
    path = tmp_path / "measuring.json"
    path.write_text(text)
    assert first_seconds(path, 12.5) == 12.5
    assert json.loads(path.read_text()) == {"seconds": 12.5}
