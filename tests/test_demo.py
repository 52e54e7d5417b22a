"""The time that the demonstration with a real model gives itself."""

import pytest

from evoseek.demo import minutes_left


def test_both_measurements_and_the_warm_start_are_taken_from_the_time():
    # 41 minutes less 8 of warm start, 3 of the first measurement and 1.75 times 3 of the second
    assert minutes_left(41, training=480, measuring=180) == pytest.approx(41 - 8 - 3 - 5.25)


def test_there_is_a_moment_left_where_nothing_is():
    assert minutes_left(5, training=600, measuring=60) == 0.05
