"""The bound on wrong answers: numbers worked out by hand, and the promise over simulated questions."""

from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.eval.draw import Sample
from evoseek.eval.results import Results
from evoseek.eval.risk import Judged, bound, bounds, fewest, judged, numbers


def answers(*runs):
    """`(number, wrong)` answers of falling certainty, the wrong ones last in each run."""
    certainties = iter(np.linspace(0.99, 0.01, sum(number for number, _ in runs)))
    return [Judged(float(next(certainties)), n >= number - wrong) for number, wrong in runs for n in range(number)]


@pytest.mark.parametrize(("share", "least"), [(0.05, 59), (0.1, 29), (0.2, 14), (0.5, 5)])
def test_the_fewest_answers_that_promise_a_share(share, least):
    """0.95^58 = 0.0510 and 0.95^59 = 0.0485; 0.9^28 = 0.0523 and 0.9^29 = 0.0471."""
    assert fewest(share) == least
    assert (1 - share) ** least <= 0.05 < (1 - share) ** (least - 1)
    assert bound(answers((least - 1, 0)), share, 100) is None
    assert bound(answers((least, 0)), share, 100).above is None


def test_one_wrong_answer_needs_93_for_5_percent():
    """P(Binomial(n, 0.05) <= 1) = 0.95^n + n 0.05 0.95^(n - 1): 0.0523 for n = 92, 0.0500 (0.04998) for n = 93."""
    assert 0.95**92 + 92 * 0.05 * 0.95**91 > 0.05 >= 0.95**93 + 93 * 0.05 * 0.95**92
    assert numbers(93, 0.05) == [93]  # a second test, of 0.7 x 93 = 65, would need 72: 0.95^72 <= 0.025
    assert bound(answers((92, 1)), 0.05, 200) is None
    found = bound(answers((93, 1)), 0.05, 200)
    assert (found.shown, found.wrong, found.questions, found.above) == (93, 1, 200, None)


def test_the_tested_numbers_go_from_the_fewest_that_can_pass_to_all_in_equal_ratios():
    """Three tests at 0.05 / 3: 0.95^80 = 0.0165 passes, 0.95^79 = 0.0174 does not; between them sqrt(80 x 200)."""
    assert numbers(58, 0.05) == []
    assert numbers(200, 0.05) == [80, 126, 200]


def test_the_threshold_shows_the_most_answers_that_pass():
    """Of 200, the 126 most certain are right and the others wrong: 126 pass, and the certainty of the 127th is left
    out. With the first wrong as well, neither 80 nor 126 passes: P(Binomial(126, 0.05) <= 1) = 0.0119 does."""
    every = answers((126, 0), (74, 74))
    found = bound(every, 0.05, 400)
    assert (found.shown, found.wrong, found.above) == (126, 0, every[126].certainty)
    assert not found.shows(every[126].certainty)
    assert found.shows(every[125].certainty)
    one = sum(comb(126, k) * 0.05**k * 0.95 ** (126 - k) for k in (0, 1))
    assert one == pytest.approx(0.0119, abs=1e-4)
    assert bound([Judged(1.0, True), *every[1:]], 0.05, 400).wrong == 1  # 0.0119 <= 0.05 / 3
    assert bound([Judged(1.0, True), Judged(1.0, True), *every[2:]], 0.05, 400) is None


def test_equal_certainties_are_shown_together_or_not_at_all():
    """The 126th and 127th are equal, so that only 100 are certain enough: 0.95^100 = 0.0059 passes."""
    tied = [Judged(0.9, False)] * 100 + [Judged(0.5, True)] * 100
    assert bound(tied, 0.05, 200).shown == 100
    assert bound([Judged(0.0, False)] * 59, 0.05, 59).shows(None)  # of an unknown certainty: all
    assert not bound(tied, 0.05, 200).shows(None)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda certainty: 0.4 * (1 - certainty) ** 2 + 0.02,
        lambda certainty: np.where(certainty > 0.75, 0.2, np.where(certainty > 0.3, 0.02, 0.5)),
        lambda certainty: np.full_like(certainty, 0.1001),
        lambda certainty: 0.095 + 0.01 * (np.round(certainty * 3) % 2),
    ],
    ids=["falls with certainty", "wrong where most certain", "never allowed", "around the share"],
)
@pytest.mark.parametrize("size", [60, 150])
def test_the_promise_holds_over_2000_calibrations(wrong, size):
    """At 10 %: the share of thresholds whose true risk is above it is at most 5 %, up to chance (four standard errors:
    0.0195). The second relation is not monotone, the last has ties: certainties are rounded."""
    rng, grid = np.random.default_rng(7), np.linspace(0.0005, 0.9995, 1000)
    broken = promised = 0
    for _ in range(2000):
        certainties = np.round(rng.random(size), 2)
        is_wrong = rng.random(size) < wrong(certainties)
        found = bound(map(Judged, certainties.tolist(), is_wrong.tolist()), 0.1, size)
        if found is not None:
            promised += 1
            shown = np.round(grid, 2) > (-1 if found.above is None else found.above)
            broken += wrong(np.round(grid[shown], 2)).mean() > 0.1
    assert broken <= 2000 * (0.05 + 4 * (0.05 * 0.95 / 2000) ** 0.5)
    assert promised == 0 or broken < promised or wrong(grid).min() > 0.1


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=150), st.sampled_from([0.05, 0.1, 0.3]))
def test_a_bound_counts_what_it_shows(drawn, share):
    every = [Judged(*one) for one in drawn]
    if found := bound(every, share, len(every)):
        shown = [one for one in every if found.shows(one.certainty)]
        assert (len(shown), sum(one.is_wrong for one in shown)) == (found.shown, found.wrong)
        assert found.wrong / found.shown < share


def sample(question, value, **more):
    scores = {"guarded_substring_match": value, "f1": value}
    return Sample(question, 0, "", scores, "answered", "x", **{"supported": True, "certainty": 0.5, **more})


def test_what_is_wrong():
    """An answer to an unanswerable question is; what is not supported is not shown; sentences are neither, by a match,
    and by F1 wrong below 0.7."""
    samples = [
        sample("right", 1.0),
        sample("wrong", 0.0, certainty=None),
        sample("none", 1.0, answerable=False),
        sample("unsupported", 0.0, supported=False),
        sample("sentences", 0.6, is_long=True),
    ]
    known = [(0.5, False), (0.0, True), (0.5, True)]
    assert [*judged(samples, "guarded_substring_match")] == known
    assert [*judged(samples, "f1")] == [*known, (0.5, True)]
    assert bounds(Results("f1", 5, 1, tuple(samples))) == {0.05: None, 0.1: None, 0.2: None}
    assert bounds(Results("f1", 1, 1, (samples[3],))) == {}
