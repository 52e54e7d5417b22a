"""The uncertainty of scores and of failure rates: intervals and paired tests, all by scipy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
RESAMPLES = 9999
BATCH = 200  # in one batch: each is as large as the scores
EQUAL = 1e-9  # scores that differ by less differ by rounding


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval of 95 %."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class PairedTest:
    """Two policies on the same questions: mean of (after - before) and its two-sided p-value."""

    difference: float
    p_value: float
    n: int


def wilson_interval(successes: int, n: int) -> Interval:
    """Return the Wilson score interval of a proportion; (0, 1) when n is 0, since nothing is known then."""
    if n == 0:
        return Interval(0.0, 1.0)
    interval = stats.binomtest(successes, n).proportion_ci(CONFIDENCE, method="wilson")
    return Interval(float(interval.low), float(interval.high))


def surely_more(failed: int, n: int, share: float) -> bool:
    """Return whether more than this share of n attempts failed, beyond chance: the lower end of Wilson's interval is
    above the share. (If each of 8 attempts fails with probability 0.15, more than 0.2 fail in every third step.)"""
    return wilson_interval(failed, n).low > share


def score_interval(values: Sequence[float], *, low: float = 0.0, high: float = 1.0) -> Interval:
    """Return the interval of the mean of graded scores from `low` to `high`, such as F1: Wilson's with the dispersion
    of these scores. A score of mean m has a variance of phi m (1 - m), where phi is 1 for scores of 0 and 1 and is
    estimated for others (quasi-likelihood: McCullagh and Nelder 1989, chapter 9); the critical value is Student's.
    Scores beyond the bounds, possible with your own reward, widen the bounds.

    Equal scores do not imply that the next one is equal, too. The share of other scores may be as large as Wilson's
    upper bound for no success in n tries. So for scores of only 1, or only 0, the interval is Wilson's own.
    """
    if not values:
        raise ValueError("an interval needs at least one value")
    low, high = min(low, *values), max(high, *values)
    scores = (np.asarray(values, dtype=float) - low) / (high - low)
    n, mean = len(scores), float(scores.mean())
    if np.ptp(scores) < EQUAL:
        unseen = wilson_interval(0, n).high
        first, last = mean * (1 - unseen), mean * (1 - unseen) + unseen
    else:
        binary = mean * (1 - mean)
        width = float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1)) ** 2 * float(scores.var(ddof=1)) / binary / n
        half = math.sqrt(width * binary + width**2 / 4) / (1 + width)
        first, last = ((mean + width / 2) / (1 + width) + side for side in (-half, half))
    return Interval(low + (high - low) * max(first, 0.0), low + (high - low) * min(last, 1.0))


def paired_test(before: Sequence[float], after: Sequence[float]) -> PairedTest:
    """Test the differences by sign flips; `before[i]` and `after[i]` belong to one question.

    Exact for few pairs (a single one shows nothing: p = 1), otherwise by 9999 random flips. For 0/1 scores it tests
    the hypothesis of McNemar's test.
    """
    if len(before) != len(after) or not before:
        raise ValueError(f"paired scores must be as many and at least one, got {len(before)} and {len(after)}")
    differences = np.asarray(after, dtype=float) - np.asarray(before, dtype=float)
    if len(before) == 1 or not differences.any():
        return PairedTest(float(differences.mean()), 1.0, len(before))
    result = stats.permutation_test(
        (differences,),
        np.mean,
        permutation_type="samples",
        n_resamples=RESAMPLES,
        batch=BATCH,
        rng=np.random.default_rng(0),
    )
    return PairedTest(float(differences.mean()), float(result.pvalue), len(before))
