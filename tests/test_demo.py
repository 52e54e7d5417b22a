"""The time that the demonstration with a real model gives itself."""

import pytest

from evoseek.demo import minutes_left, plan


def test_both_measurements_and_the_cold_start_are_taken_from_the_time():
    # 60 minutes less 12 of the cold start, 3 of the first measurement and 1.75 times 3 of the second
    assert minutes_left(60, cold_start=720, measuring=180) == pytest.approx(60 - 12 - 3 - 5.25)


def test_there_is_a_moment_left_where_nothing_is():
    assert minutes_left(5, cold_start=600, measuring=60) == 0.05


def test_the_plan_says_what_is_left_for_reinforcement_learning():
    # 60 minutes less 2 of writing, 13 of demonstrations, and 4 and 7 of measurements
    assert "first measurement 4, reinforcement learning 34, last measurement 7." in plan(60)
    assert "reinforcement learning 0," in plan(20)
