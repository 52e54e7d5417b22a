"""Wilson by the formula worked out by hand; the permutation test by counting all sign flips."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.eval.statistics import bootstrap_mean_interval, paired_test, wilson_interval


def test_wilson_by_hand():
    """8 of 10, z = 1.959964: centre (0.8 + z2/20) / (1 + z2/10), half width z sqrt(.016 + z2/400) / (1 + z2/10)."""
    z2 = 1.959964**2
    centre = (0.8 + z2 / 20) / (1 + z2 / 10)
    half = math.sqrt(z2 * (0.016 + z2 / 400)) / (1 + z2 / 10)
    interval = wilson_interval(8, 10)
    assert interval.low == pytest.approx(centre - half, abs=1e-6)
    assert interval.high == pytest.approx(centre + half, abs=1e-6)


def test_wilson_at_the_borders():
    assert wilson_interval(0, 0) == wilson_interval(0, 0).__class__(0.0, 1.0)
    assert wilson_interval(0, 10).low == pytest.approx(0.0, abs=1e-12)
    assert wilson_interval(0, 10).high == pytest.approx(0.27753, abs=1e-4)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_proportion(drawn):
    successes, n = drawn
    interval = wilson_interval(successes, n)
    assert 0.0 <= interval.low <= successes / n + 1e-12
    assert successes / n - 1e-12 <= interval.high <= 1.0


def test_bootstrap_is_seeded_and_holds_the_mean():
    values = [0.1, 0.5, 0.9, 0.4, 0.3, 1.0]
    interval = bootstrap_mean_interval(values, seed=1)
    assert interval == bootstrap_mean_interval(values, seed=1)
    assert interval.low < sum(values) / 6 < interval.high
    assert bootstrap_mean_interval([0.5, 0.5]) == bootstrap_mean_interval([0.5])
    with pytest.raises(ValueError, match="at least one"):
        bootstrap_mean_interval([])


def test_paired_test_counts_sign_flips():
    """Five improvements, none worse: of 32 sign flips two are as extreme, so p = 2/32."""
    result = paired_test([0, 0, 0, 0, 0, 1], [1, 1, 1, 1, 1, 1])
    assert result.p_value == pytest.approx(4 / 64)
    assert result.difference == pytest.approx(5 / 6)
    assert result.n == 6


def test_paired_test_without_a_difference():
    assert paired_test([1, 0], [1, 0]).p_value == 1.0
    with pytest.raises(ValueError, match="as many"):
        paired_test([1], [1, 0])
