"""Comparisons of evaluations, paired by question, so that only their differences count.

    0 or 1, one sample each   exact McNemar test on the discordant pairs, interval of Agresti and Min (2005)
    graded, or several samples   sign flips of the differences between the questions' means for the p-value, and their
                              paired bootstrap for the interval
    several comparisons       p-values after Holm (1979)
    several seeds a side      Student's interval and test over seeds, paired in the order given; Welch's for different
                              numbers of seeds
    too few questions         the smallest difference that n pairs would show 4 times out of 5

All intervals are 95 %. A difference is the second minus the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from math import inf, isinf, sqrt
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from scipy import stats

from evoseek.errors import ConfigError, DataError
from evoseek.eval.draw import Sample
from evoseek.eval.folder import EvaluationFolder
from evoseek.eval.results import MATCHES, OF_SENTENCES, lowest_value, value_of
from evoseek.eval.statistics import BATCH, CONFIDENCE, EQUAL, RESAMPLES, Interval, paired_test, score_interval

_Z = float(stats.norm.ppf(0.975))
_POWER = float(stats.norm.ppf(0.8))
_FEWEST_SEEDS = 2
_TWO_POLICIES = (
    "A difference of two policies says nothing about how they were trained: other seeds may give another difference. "
    "Compare methods over seeds: evoseek compare A-0 A-1 A-2 --against B-0 B-1 B-2."
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two evaluations by one metric over their `n` common questions. `adjusted` is the p-value after Holm; `detectable`
    is the difference that n equally variable pairs would show with a power of 80 %."""

    first: str
    second: str
    metric: str
    test: str
    difference: float
    interval: Interval
    p_value: float
    adjusted: float
    detectable: float
    n: int

    @property
    def carries(self) -> bool:
        """Whether n questions are enough for a claim about a difference of this size."""
        return abs(self.difference) >= self.detectable


@dataclass(frozen=True, slots=True)
class Compared:
    """Evaluations by name, compared by one metric over their common questions: the means, every pair, and notes for the
    reader."""

    metric: str
    n: int
    means: Mapping[str, float]
    pairs: Sequence[Comparison]
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class ComparedSides:
    """Two methods by one metric over `n` questions: the mean of each seed's evaluation, and the mean difference with
    its interval and p-value over seeds."""

    metric: str
    n: int
    first: Mapping[str, float]
    second: Mapping[str, float]
    test: str
    difference: float
    interval: Interval
    p_value: float
    notes: Sequence[str]


def compare_folders(paths: Sequence[Path], metric: str | None = None) -> Compared:
    """Compare every pair of finished evaluations over their common questions, by their metric or this one. If one of
    them is scored as sentences, all are.

    Raises ConfigError for a single folder, a folder named twice, or different metrics without a choice; RunError or
    DataError if a folder holds no finished evaluation, or no question is common.
    """
    chosen, every, samples = _read(paths, metric)
    shared = common(every)
    pairs = compare(shared, chosen)
    means = {name: fmean(own.values()) for name, own in shared.items()}
    notes = [*_left_out(pairs[0].n, chosen, every, samples), *_too_few(pairs), _TWO_POLICIES]
    return Compared(chosen, pairs[0].n, means, pairs, notes)


def compare_sides(first: Sequence[Path], second: Sequence[Path], metric: str | None = None) -> ComparedSides:
    """Compare two methods by finished evaluations of two or more seeds of each. Raises as `compare_folders`."""
    if min(len(first), len(second)) < _FEWEST_SEEDS:
        raise ConfigError(
            f"{len(first)} evaluations are compared with {len(second)} (--against), but the spread over seeds needs "
            "two. Give two or more on each side, or all of them without --against to compare each pair."
        )
    chosen, every, samples = _read([*first, *second], metric)
    shared = common(every)
    means = {name: fmean(own.values()) for name, own in shared.items()}
    sides = [{str(path): means[str(path)] for path in side} for side in (first, second)]
    before, after = ([*side.values()] for side in sides)
    is_paired = len(before) == len(after)
    interval, p_value = _over_seeds(before, after, is_paired=is_paired)
    test, difference = "Student, seed by seed" if is_paired else "Welch", fmean(after) - fmean(before)
    n = len(next(iter(shared.values())))
    notes = list(_left_out(n, chosen, every, samples))
    return ComparedSides(chosen, n, sides[0], sides[1], test, difference, interval, p_value, notes)


def _over_seeds(before: Sequence[float], after: Sequence[float], *, is_paired: bool) -> tuple[Interval, float]:
    """Return the interval and the p-value of a mean difference. If the seeds show no spread, these are the values for
    equal differences of questions."""
    pairs = zip(before, after, strict=True) if is_paired else product(before, after)
    differences = [b - a for a, b in pairs]
    if np.ptp(differences) < EQUAL:
        return bootstrap(differences), paired_test([0.0] * len(differences), differences).p_value
    found: Any = stats.ttest_rel(after, before) if is_paired else stats.ttest_ind(after, before, equal_var=False)
    limits = found.confidence_interval(CONFIDENCE)
    return Interval(float(limits.low), float(limits.high)), float(found.pvalue)


def _read(
    paths: Sequence[Path], metric: str | None
) -> tuple[str, dict[str, dict[str, float]], dict[str, list[Sample]]]:
    if len(paths) < 2 or len({path.resolve() for path in paths}) < len(paths):
        raise ConfigError("A comparison needs two or more different folders that `evoseek eval --out` wrote.")
    folders = {str(path): EvaluationFolder(path) for path in paths}
    declared = {name: folder.declared() for name, folder in folders.items()}
    samples = {name: list(folder.samples().values()) for name, folder in folders.items()}
    for name, (_, n) in declared.items():
        if len(samples[name]) != n:
            raise DataError(
                f"{name} has results of {n} samples, but {len(samples[name])} in samples.jsonl. Run its `evoseek eval "
                "--out` command again to draw the missing ones."
            )
    chosen = _metric(metric, declared, samples)
    return chosen, {name: values_of(own, chosen) for name, own in samples.items()}, samples


def _metric(given: str | None, declared: Mapping[str, tuple[str, int]], samples: Mapping[str, Sequence[Sample]]) -> str:
    names = sorted({metric for metric, _ in declared.values()})
    if given is None and len(names) > 1 and OF_SENTENCES not in names:
        raise ConfigError(f"The evaluations declare different metrics ({', '.join(names)}). Choose one with --metric.")
    chosen = given or (OF_SENTENCES if OF_SENTENCES in names else names[0])
    for name, own in samples.items():
        for sample in own:
            if sample.invalid is None and chosen not in sample.scores:
                has = ", ".join(sample.scores) or "none"
                raise DataError(
                    f"{name} has a sample without a score by {chosen} ({sample.question!r}). It has: {has}."
                )
    return chosen


def _left_out(
    n: int, metric: str, every: Mapping[str, Values], samples: Mapping[str, Sequence[Sample]]
) -> Iterator[str]:
    if any(len(own) != n for own in every.values()):
        sizes = ", ".join(f"{name} has {len(own)}" for name, own in every.items())
        yield f"Only the {n} questions that all of them have are compared: {sizes}."
    if metric in MATCHES and (long := sum(sample.is_long for own in samples.values() for sample in own)):
        yield f"{long} samples whose answer is of sentences are compared apart: --metric f1."
    for name, own in samples.items():
        if failed := sum(sample.invalid is not None for sample in own):
            lowest = min(value_of(sample, metric) for sample in own if sample.invalid is not None)
            yield f"{failed} of {len(own)} samples of {name} are Invalid and count as {lowest:g}."


def _too_few(pairs: Sequence[Comparison]) -> Iterator[str]:
    for one in pairs:
        if not one.carries:
            yield (
                f"{one.n} question{'' if one.n == 1 else 's'} cannot carry a claim about {one.second} and {one.first}: "
                f"differences below {one.detectable:.3f} are found less than 4 times of 5, and this one is "
                f"{one.difference:+.3f}."
            )


Values = Mapping[str, float]
"""A value by question."""


def values_of(samples: Sequence[Sample], metric: str) -> dict[str, float]:
    """Average each question's samples, by id and content: different questions with one id are not paired. Matches score
    only short answers; if some answers are of sentences, F1 scores only these."""
    is_mixed = len({sample.is_long for sample in samples if sample.answerable}) > 1
    found: dict[str, list[float]] = {}
    for sample in samples:
        if sample.is_long if metric in MATCHES else is_mixed and metric == "f1" and not sample.is_long:
            continue
        found.setdefault(f"{sample.question}/{sample.content}", []).append(value_of(sample, metric))
    return {key: fmean(own) for key, own in found.items()}


def common(evaluations: Mapping[str, Values]) -> dict[str, dict[str, float]]:
    """Return the evaluations over their common questions. Raises DataError if there are none."""
    first, *others = evaluations.values()
    shared = [key for key in sorted(first) if all(key in other for other in others)]
    if not shared:
        raise DataError(
            f"{' and '.join(evaluations)} have no question in common, so they cannot be compared. Compare evaluations "
            "of the same questions (a question with another text or other golden answers is another one)."
        )
    return {name: {key: values[key] for key in shared} for name, values in evaluations.items()}


def compare(evaluations: Mapping[str, Values], metric: str) -> list[Comparison]:
    """Compare every pair of evaluations over the same questions, with p-values corrected for the number of pairs."""
    made = [
        _pair(first, second, metric, evaluations[first], evaluations[second])
        for first, second in combinations(evaluations, 2)
    ]
    adjusted = holm([one.p_value for one in made])
    return [replace(one, adjusted=p) for one, p in zip(made, adjusted, strict=True)]


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values by Holm's step-down method: the chance of any false claim among them stays below the level."""
    count, highest, adjusted = len(p_values), 0.0, [0.0] * len(p_values)
    for rank, index in enumerate(sorted(range(count), key=lambda index: p_values[index])):
        highest = max(highest, min(1.0, (count - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def mcnemar(better: int, worse: int) -> float:
    """Return the exact two-sided p-value of equally many better and worse discordant pairs."""
    total = better + worse
    return float(stats.binomtest(better, total).pvalue) if total else 1.0


def paired_interval(better: int, worse: int, n: int) -> Interval:
    """Return the interval of the difference of two paired proportions (Agresti and Min, 2005). Half a pair is added to
    each of the four cells, so that the interval has a width even without discordant pairs."""
    total = n + 2
    mean = (better - worse) / total
    half = _Z * sqrt(max(better + worse + 1 - (better - worse) ** 2 / total, 0.0)) / total
    return Interval(max(mean - half, -1.0), min(mean + half, 1.0))


def bootstrap(differences: Sequence[float], *, bound: float = 1.0) -> Interval:
    """Return the interval of the mean of paired differences from -`bound` to `bound` (inf: unknown): the percentile
    bootstrap's, or on either side Student's if it reaches further: resampling few questions shows too little.

    Equal differences cannot be resampled, so they get the interval of bounded scores.
    """
    values = np.asarray(differences, dtype=float)
    if np.ptp(values) < EQUAL:
        bound = max(1.0, abs(differences[0])) if isinf(bound) else bound
        return score_interval(list(differences), low=-bound, high=bound)
    resampled = stats.bootstrap(
        (values,),
        np.mean,
        confidence_level=CONFIDENCE,
        n_resamples=RESAMPLES,
        batch=BATCH,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    half = float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / sqrt(len(values)))
    mean = float(values.mean())
    low, high = min(float(resampled.low), mean - half), max(float(resampled.high), mean + half)
    return Interval(max(low, -bound), min(high, bound))


def detectable(differences: Sequence[float]) -> float:
    """Return the difference that equally many and variable pairs show with a power of 80 % at the level of 5 %: (1.96 +
    0.84) standard errors. One more discordant pair is assumed, since none seen does not mean none."""
    n = len(differences)
    mean = sum(differences) / (n + 1)
    squares = sum(value * value for value in differences) + 1
    return (_Z + _POWER) * sqrt(max(squares / (n + 1) - mean * mean, 0.0) / n)


def _pair(first: str, second: str, metric: str, before: Values, after: Values) -> Comparison:
    differences = [after[key] - before[key] for key in before]
    n, mean = len(differences), fmean(differences)
    values, lowest = {*before.values(), *after.values()}, lowest_value(metric)
    if values <= {0.0, 1.0}:
        better, worse = (sum(value == side for value in differences) for side in (1.0, -1.0))
        test, interval, p_value = "McNemar", paired_interval(better, worse, n), mcnemar(better, worse)
    else:
        # a user's own reward may have any values
        bound = 1.0 - lowest if lowest <= min(values) and max(values) <= 1.0 else inf
        test, interval = "sign flips", bootstrap(differences, bound=bound)
        p_value = paired_test([0.0] * n, differences).p_value
    return Comparison(first, second, metric, test, mean, interval, p_value, p_value, detectable(differences), n)
