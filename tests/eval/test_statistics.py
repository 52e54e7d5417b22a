"""Wilson by the formula worked out by hand; the permutation test by counting all sign flips."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.eval.statistics import bootstrap_mean_interval, paired_test, score_interval, wilson_interval


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
    for equal in ([100.0], [100.0, 100.0]):
        interval = bootstrap_mean_interval(equal)
        assert (interval.low, interval.high) == (-math.inf, math.inf)
    with pytest.raises(ValueError, match="at least one"):
        bootstrap_mean_interval([])


def test_graded_scores_by_hand():
    """z2 = 3.841459. Twice 0.5: 5.841459 scores with those that are added, variance 3.841459 / 4 / 5.841459 = .164405,
    half width sqrt(3.841459 * .164405 / 5.841459) = .328810. For 8 of 10 it is Agresti and Coull's: centre (8 + z2/2) /
    (10 + z2) = .716745, half width z sqrt(.716745 * .283255 / 13.841459) = .237370."""
    interval = score_interval([0.5, 0.5])
    assert (interval.low, interval.high) == pytest.approx((0.171190, 0.828810), abs=1e-5)
    interval = score_interval([1.0] * 8 + [0.0] * 2)
    assert (interval.low, interval.high) == pytest.approx((0.479375, 0.954115), abs=1e-5)
    doubled = score_interval([0.0, 0.0], low=-1.0)
    assert (doubled.low, doubled.high) == pytest.approx((-0.657620, 0.657620), abs=2e-5)
    with pytest.raises(ValueError, match="at least one"):
        score_interval([])


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=60))
def test_an_interval_of_graded_scores_holds_their_mean_and_is_never_a_point(values):
    interval = score_interval(values, low=-1.0)
    assert -1.0 <= interval.low <= sum(values) / len(values) + 1e-9
    assert sum(values) / len(values) - 1e-9 <= interval.high <= 1.0
    assert interval.high - interval.low > 0.02


@pytest.mark.parametrize("n", [5, 20])
@pytest.mark.parametrize(("perfect", "partial"), [(0.02, 0.06), (0.3, 0.4), (0.9, 0.08)])
def test_it_holds_the_true_mean_as_often_as_it_says(n, perfect, partial):
    """Scores like F1: a share is 1, a share between, and the others 0. At least 94 % of 2000 samples."""
    rng, truth, held = random.Random(0), perfect + partial / 2, 0
    for _ in range(2000):
        draws = [rng.random() for _ in range(n)]
        scores = [1.0 if u < perfect else rng.betavariate(2, 2) if u < perfect + partial else 0.0 for u in draws]
        interval = score_interval(scores)
        held += interval.low <= truth <= interval.high
    assert held >= 0.94 * 2000


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
