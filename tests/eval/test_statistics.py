"""Wilson by the formula worked out by hand; the permutation test by counting all sign flips."""

import math
import random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.eval.statistics import paired_test, score_interval, surely_more, wilson_interval


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


def test_few_failures_of_a_small_step_are_chance():
    """Wilson's lower ends: 4 of 8 .215, 3 of 8 .137; 19 of 64 .199, 20 of 64 .212; 1 of 8 .022."""
    assert [surely_more(failed, 8, 0.2) for failed in (0, 2, 3, 4, 8)] == [False, False, False, True, True]
    assert (surely_more(19, 64, 0.2), surely_more(20, 64, 0.2)) == (False, True)
    assert (surely_more(0, 8, 0.0), surely_more(1, 8, 0.0), surely_more(8, 8, 1.0)) == (False, True, False)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_proportion(drawn):
    successes, n = drawn
    interval = wilson_interval(successes, n)
    assert 0.0 <= interval.low <= successes / n + 1e-12
    assert successes / n - 1e-12 <= interval.high <= 1.0


def test_graded_scores_by_hand():
    """.2, .4, .6, .8: mean .5, variance .2 / 3 = .0666667, phi = .2666667; Student's 3.182446 with 3 degrees of
    freedom: width = 3.182446^2 * .2666667 / 4 = .675198, centre (.5 + .337599) / 1.675198 = .5, half width
    sqrt(.675198 / 4 + .675198^2 / 4) / 1.675198 = .317435. From -1 to 1 the same scores are -.6, -.2, .2, .6."""
    interval = score_interval([0.2, 0.4, 0.6, 0.8])
    assert (interval.low, interval.high) == pytest.approx((0.182565, 0.817435), abs=1e-5)
    doubled = score_interval([-0.6, -0.2, 0.2, 0.6], low=-1.0)
    assert (doubled.low, doubled.high) == pytest.approx((-0.634870, 0.634870), abs=2e-5)
    with pytest.raises(ValueError, match="at least one"):
        score_interval([])


def test_equal_scores_by_hand():
    """z2 = 3.841459. Of two scores a share of z2 / (2 + z2) = .657620 could be other ones: .5 * .342380 = .171190."""
    for values in ([0.5, 0.5], [0.5, 0.5 + 1e-15]):
        interval = score_interval(values)
        assert (interval.low, interval.high) == pytest.approx((0.171190, 0.828810), abs=1e-5)
    for score, successes in ((1.0, 30), (0.0, 0)):
        interval, wilson = score_interval([score] * 30), wilson_interval(successes, 30)
        assert (interval.low, interval.high) == pytest.approx((wilson.low, wilson.high), abs=1e-9)


def test_scores_that_differ_by_little_are_not_equal():
    """.5 -+ 5e-7: Student's 12.7062 with 1 degree of freedom times 7.0711e-7 / sqrt(2) = 6.3531e-6."""
    interval = score_interval([0.5 - 5e-7, 0.5 + 5e-7])
    assert (0.5 - interval.low, interval.high - 0.5) == pytest.approx((6.3531e-6, 6.3531e-6), abs=1e-9)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=60))
def test_an_interval_of_graded_scores_holds_their_mean_and_is_never_a_point(values):
    interval = score_interval(values, low=-1.0)
    assert -1.0 <= interval.low <= sum(values) / len(values) + 1e-9
    assert sum(values) / len(values) - 1e-9 <= interval.high <= 1.0
    assert interval.high > interval.low


@pytest.mark.parametrize("deviation", [0.2, 0.07, 0.01])
def test_it_is_not_wider_than_the_scores_are_apart(deviation):
    """Scores about .5 without a rare one far away: between 93 and 97 % of 2000 samples of 20 hold the true mean."""
    rng, size = random.Random(0), 0.125 / deviation**2 - 0.5
    samples = [[rng.betavariate(size, size) for _ in range(20)] for _ in range(2000)]
    held = sum(interval.low <= 0.5 <= interval.high for interval in map(score_interval, samples))
    assert 0.93 * 2000 <= held <= 0.97 * 2000


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


@pytest.mark.parametrize("scores", [[1.1, 0.9], [1.2, 1.1, 1.3], [-0.5, -0.2], [-1.0, 1.0], [2.0, 2.0]])
def test_scores_beyond_the_bounds_widen_them(scores):
    """A reward of one's own may be -1 or 1, and is scored as one between these bounds is."""
    interval = score_interval(scores)
    low, high = min(0.0, *scores), max(1.0, *scores)
    assert low <= interval.low < fmean(scores) <= interval.high <= high
    assert score_interval([-1.0, 1.0, 1.0]) == score_interval([-1.0, 1.0, 1.0], low=-1.0)


def test_paired_test_counts_sign_flips():
    """Five improvements, none worse: of 32 sign flips two are as extreme, so p = 2/32."""
    result = paired_test([0, 0, 0, 0, 0, 1], [1, 1, 1, 1, 1, 1])
    assert result.p_value == pytest.approx(4 / 64)
    assert result.difference == pytest.approx(5 / 6)
    assert result.n == 6


def test_one_pair_alone_shows_nothing():
    result = paired_test([0], [1])
    assert (result.difference, result.p_value, result.n) == (1.0, 1.0, 1)


def test_paired_test_without_a_difference():
    assert paired_test([1, 0], [1, 0]).p_value == 1.0
    with pytest.raises(ValueError, match="as many"):
        paired_test([1], [1, 0])
