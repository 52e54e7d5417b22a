import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.credit.whiten import whiten

sequences = st.lists(st.lists(st.floats(-2, 2, allow_subnormal=False), max_size=6), max_size=6)


def test_by_hand_every_token_counts_alike() -> None:
    """Mean 2, deviations -2, 0, 2 and 0, variance 8 / 3."""
    whitened = whiten([[0.0, 2.0, 4.0], [], [2.0]])
    unit = 2.0 / math.sqrt(8 / 3 + 1e-8)
    assert [len(sequence) for sequence in whitened] == [3, 0, 1]
    assert [*whitened[0], *whitened[2]] == pytest.approx([-unit, 0.0, unit, 0.0])


def test_eps_bounds_what_noise_can_become() -> None:
    (whitened,) = whiten([[0.0, 1e-9]])
    assert max(map(abs, whitened)) < 1e-4


@pytest.mark.parametrize("lists", [[], [[]], [[0.7]], [[0.1, 0.1], [0.1]]])
def test_trap_nothing_to_compare_gives_exactly_zero(lists: list) -> None:
    assert whiten(lists) == [[0.0] * len(values) for values in lists]


@given(sequences)
def test_mean_zero_and_deviation_at_most_one(lists: list) -> None:
    values = [value for sequence in whiten(lists) for value in sequence]
    assert math.fsum(values) == pytest.approx(0.0, abs=1e-6)
    assert math.fsum(value**2 for value in values) <= max(len(values) - 1, 0) + 1e-6


@given(sequences)
def test_the_order_of_the_sequences_changes_nothing(lists: list) -> None:
    assert whiten(lists[::-1]) == whiten(lists)[::-1]
