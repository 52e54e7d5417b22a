"""Agreement, rates and kappa, with numbers worked out by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.eval.judging import Agreement
from evoseek.eval.statistics import Interval, wilson_interval

PAIRS = st.lists(st.tuples(st.booleans(), st.sampled_from([True, False, None])))


def made(tp: int, fp: int, fn: int, tn: int, unread: tuple[int, int] = (0, 0)) -> Agreement:
    """`unread`: answers without a verdict, labelled correct and labelled incorrect."""
    return Agreement.of(
        [(True, True)] * tp + [(False, True)] * fp + [(True, False)] * fn + [(False, False)] * tn
        + [(True, None)] * unread[0] + [(False, None)] * unread[1]
    )  # fmt: skip


def test_by_hand():
    """50 answers, 20 both correct, 5 false positives, 10 false negatives, 15 both incorrect: 35 of 50 agree. By chance
    (30 * 25 + 20 * 25) / 2500 = 0.5, so kappa is (0.7 - 0.5) / 0.5."""
    found = made(20, 5, 10, 15)
    assert (found.agreement.mean, found.agreement.n, found.agreement.n_invalid) == (0.7, 50, 0)
    assert found.agreement.interval == wilson_interval(35, 50)
    assert found.kappa == pytest.approx(0.4)
    assert (found.false_positives.mean, found.false_positives.n) == (0.25, 20)
    assert found.false_positives.interval == wilson_interval(5, 20)
    assert found.false_negatives.mean == pytest.approx(1 / 3)
    assert found.false_negatives.n == 30


def test_answers_without_a_verdict_are_counted_and_in_no_mean():
    found = made(20, 5, 10, 15, unread=(3, 4))
    assert (found.agreement.mean, found.agreement.n, found.agreement.n_invalid) == (0.7, 57, 7)
    assert (found.false_positives.mean, found.false_positives.n, found.false_positives.n_invalid) == (0.25, 24, 4)
    assert (found.false_negatives.n, found.false_negatives.n_invalid) == (33, 3)
    assert found.agreement.interval == wilson_interval(35, 50)
    assert found.kappa == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("cells", "kappa"),
    [((10, 0, 0, 10), 1.0), ((0, 10, 10, 0), -1.0), ((5, 5, 5, 5), 0.0), ((8, 2, 0, 0), 0.0), ((0, 0, 0, 0), None)],
)
def test_kappa_at_its_borders(cells, kappa):
    assert made(*cells).kappa == kappa if kappa is not None else math.isnan(made(*cells).kappa)


def test_nothing_to_measure_gives_no_number():
    found = made(3, 0, 0, 0, unread=(1, 0))
    assert math.isnan(found.kappa)  # one label, one verdict
    assert math.isnan(found.false_positives.mean)
    assert (found.false_positives.n, found.false_positives.interval) == (0, Interval(0.0, 1.0))
    assert math.isnan(made(0, 0, 0, 0, unread=(2, 2)).agreement.mean)


@given(PAIRS)
def test_it_is_a_count_of_pairs(pairs):
    found = Agreement.of(pairs)
    judged = [(label, verdict) for label, verdict in pairs if verdict is not None]
    assert found.agreement.n == len(pairs)
    assert found.agreement.n_invalid == len(pairs) - len(judged)
    if judged:
        assert found.agreement.mean == pytest.approx(sum(a == b for a, b in judged) / len(judged))
    assert found.false_positives.n + found.false_negatives.n == len(pairs)
    flipped = Agreement.of([(not label, None if verdict is None else not verdict) for label, verdict in pairs])
    assert flipped.kappa == pytest.approx(found.kappa, nan_ok=True)
    assert flipped.false_positives == found.false_negatives or math.isnan(found.false_negatives.mean)
