"""Streams are functions of what they are for."""

from __future__ import annotations

from math import floor
from statistics import mean

from evoseek.policy.random_streams import turn_uniforms


def test_the_values_are_pinned():
    """A run that is resumed with a later version goes on with the same numbers."""
    values = turn_uniforms(1, "q1/0", 2, 3)
    assert values == [0.7756553339758748, 0.16491838420678806, 0.8047068814724614]
    leading = [floor(value * 2**24) / 2**24 for value in values]
    assert leading == [0.7756553292274475, 0.16491836309432983, 0.804706871509552]  # of versions with 24 bits


def test_the_values_have_the_53_bits_of_float64():
    """Multiples of 2^-53, of which every bit is set in half of them."""
    numbers = [int(value * 2**53) for value in turn_uniforms(0, "a", 0, 10_000)]
    assert [number / 2**53 for number in numbers] == turn_uniforms(0, "a", 0, 10_000)
    for bit in range(53):
        assert abs(mean(number >> bit & 1 for number in numbers) - 0.5) < 0.03


def test_a_longer_draw_begins_like_a_shorter_one():
    assert turn_uniforms(0, "a", 0, 50)[:7] == turn_uniforms(0, "a", 0, 7)


def test_seed_trajectory_and_turn_each_matter_and_do_not_run_together():
    names = [(0, "a", 0), (1, "a", 0), (0, "b", 0), (0, "a", 1), (0, "a1", 1), (0, "a", 11), (10, "a", 1), (1, "0a", 1)]
    assert len({tuple(turn_uniforms(*name, 4)) for name in names}) == len(names)


def test_values_are_uniform_below_one():
    values = [value for number in range(200) for value in turn_uniforms(0, f"t{number}", 0, 50)]
    assert all(0 <= value < 1 for value in values)
    assert abs(mean(values) - 0.5) < 0.015
    assert abs(mean(value < 0.1 for value in values) - 0.1) < 0.015
    firsts = [turn_uniforms(0, f"t{number}", 0, 1)[0] for number in range(2000)]
    assert abs(mean(firsts) - 0.5) < 0.03
