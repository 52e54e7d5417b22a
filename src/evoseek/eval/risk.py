"""Wrong answers bounded: how certain an answer has to be to be shown, so that few of the shown answers are wrong.

An answer is shown if the check of evidence supports it and its certainty is above t. It is wrong if it is not right,
and every answer to an unanswerable question is wrong. The risk is a share of what is shown:

    R(t) = P(wrong | supported, certainty > t)

It is not monotone in t, since a model can be wrong where it is most certain. Conformal risk control (arXiv 2208.02814)
needs a monotone loss. It bounds the mean over all questions, here P(wrong and shown), and that without a confidence. So
this module uses Learn then Test (arXiv 2110.01052), with an exact test of R(t) > A, of level D in all:

    N answers are supported. For a number m, t_m is the (m+1)-th highest certainty (for m = N: none). Above it are
    n_m <= m answers, and k_m of them are wrong. Given t_m and n_m, they are independent draws of what t_m shows:
        k_m ~ Binomial(n_m, R(t_m)),    p_m = P(Binomial(n_m, A) <= k_m)
    J numbers are tested. They depend on N, A and D alone. The largest m with p_m <= D / J gives the threshold. Then
        P(R(t) > A) <= D
    by Bonferroni's inequality, for any relation of certainty and right answers, and with ties. The condition says that
    the upper bound of Clopper and Pearson for R(t_m), of confidence 1 - D / J, is at most A.

The promise holds for one model, and for questions drawn as these were.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from scipy import stats

from evoseek.agent.bound import Bound
from evoseek.eval.draw import Sample
from evoseek.eval.results import MATCHES, Results, value_of
from evoseek.eval.statistics import CONFIDENCE
from evoseek.text.normalization import RIGHT_FROM

SHARES = (0.05, 0.1, 0.2)
"""The shares of wrong answers in the table of an evaluation."""

_RATIO = 0.7  # of two numbers of answers that are tested one after the other, at most


class Judged(NamedTuple):
    """A supported answer: its certainty (0: unknown), and whether it is wrong."""

    certainty: float
    is_wrong: bool


def bound(answers: Iterable[Judged], most_wrong: float, questions: int, confidence: float = CONFIDENCE) -> Bound | None:
    """Return the bound that shows the most answers, set on the supported answers to `questions` questions; None if
    there is none."""
    ranked = sorted(answers, reverse=True)
    tested = numbers(len(ranked), most_wrong, confidence)
    for number in reversed(tested):
        above = ranked[number].certainty if number < len(ranked) else None
        shown = [one for one in ranked if above is None or one.certainty > above]
        wrong = sum(one.is_wrong for one in shown)
        if shown and stats.binom.cdf(wrong, len(shown), most_wrong) <= (1 - confidence) / len(tested):
            return Bound(most_wrong, confidence, above, len(shown), wrong, questions)
    return None


def fewest(most_wrong: float, confidence: float = CONFIDENCE) -> int:
    """Return the fewest answers that must be shown for a bound, if all of them are right: the least n with (1 -
    most_wrong)^n <= 1 - confidence."""
    return math.ceil(math.log(1 - confidence) / math.log(1 - most_wrong) - 1e-9)


def numbers(answers: int, most_wrong: float, confidence: float = CONFIDENCE) -> list[int]:
    """Return which numbers of the most certain answers are tested: the fewest that can pass, all of them, and some in
    between, in equal ratios. Empty if none can pass."""
    if answers < fewest(most_wrong, confidence):
        return []
    count, least = 1, answers
    while (lower := fewest(most_wrong, 1 - (1 - confidence) / (count + 1))) <= answers * _RATIO**count:
        count, least = count + 1, lower
    steps = max(count - 1, 1)
    return [round(answers * (least / answers) ** (step / steps)) for step in reversed(range(count))]


def judged(samples: Iterable[Sample], metric: str) -> Iterator[Judged]:
    """Yield the supported answers, one of each question. Answers of sentences are left out where the metric is a match,
    which says nothing about them."""
    for one in samples:
        if one.number == 0 and one.supported and not (one.is_long and metric in MATCHES):
            is_right = one.answerable and value_of(one, metric) >= RIGHT_FROM
            yield Judged(one.certainty or 0.0, not is_right)


def bounds(results: Results) -> dict[float, Bound | None]:
    """Return the bound for each of `SHARES`; empty without a supported answer."""
    answers: Sequence[Judged] = list(judged(results.samples, results.metric))
    return {share: bound(answers, share, results.n) for share in SHARES} if answers else {}
