"""How often the 95 % intervals of scores hold the true mean, in 2,000 synthetic evaluations of each kind.

    python bench/interval_coverage.py [--experiments 2000] [--paired]

A row is a distribution of scores, a column a number of questions: the share of the experiments whose interval holds the
true mean, for Wilson's interval (scores of 0 and 1) or that of graded scores. `--paired` does the same for differences
of two evaluations of the same questions, with the intervals that `evoseek compare` gives. Shares outside of 94 to 96 %
are marked: `-` claims more certainty than there is, `+` less, and `*` where no interval could do better: few numbers of
right answers are likely, each is held or not as a whole, and no series of them has a probability of 94 to 96 %. Of
2,000 experiments a share has a standard error of half a percent. The reasons of the others are in `notes/measured.md`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from evoseek.eval.comparison import bootstrap, paired_interval
from evoseek.eval.statistics import Interval, score_interval, wilson_interval

Draw = Callable[[np.random.Generator, int], NDArray[np.float64]]
NUMBERS = (20, 125, 500)


@dataclass(frozen=True)
class Scores:
    """A distribution of scores, with its true mean."""

    name: str
    draw: Draw
    mean: float
    is_binary: bool = False


def right(p: float) -> Scores:
    """0 or 1."""
    return Scores(f"0 or 1, {p:g} right", lambda rng, n: (rng.random(n) < p).astype(float), p, True)


def mixed(name: str, one: float, between: float, a: float, b: float) -> Scores:
    """As F1 is: 1 with a chance of `one`, beta(a, b) with that of `between`, else 0."""

    def draw(rng: np.random.Generator, n: int) -> NDArray[np.float64]:
        kind = rng.random(n)
        return np.where(kind < one, 1.0, np.where(kind < one + between, rng.beta(a, b, n), 0.0))

    return Scores(name, draw, one + between * a / (a + b))


def average(p_low: float, p_high: float, k: int) -> Scores:
    """The mean of k samples of a question, whose chance of being right differs from question to question."""

    def draw(rng: np.random.Generator, n: int) -> NDArray[np.float64]:
        chances = rng.choice([p_low, p_high], n)
        return rng.binomial(k, chances) / k

    return Scores(f"avg@{k}, half {p_low:g}, half {p_high:g}", draw, (p_low + p_high) / 2)


KINDS = (
    *map(right, (0.5, 0.8, 0.95, 0.99, 0.999)),
    mixed("graded, F1 of a fair policy", 0.3, 0.4, 2, 2),
    mixed("graded, skewed: mostly 0", 0.02, 0.06, 2, 2),
    mixed("graded, skewed: mostly 1", 0.9, 0.08, 2, 2),
    mixed("graded, narrow about .5", 0.0, 1.0, 50, 50),
    mixed("graded, nearly constant: .5 +- .01", 0.0, 1.0, 1250, 1250),
    mixed("graded, long tail", 0.0, 1.0, 0.2, 2),
    mixed("graded, .5 +- .01, 3 % are 0", 0.0, 0.97, 1250, 1250),
    average(0.1, 0.9, 4),
    average(0.4, 0.6, 8),
    Scores("constant 1", lambda rng, n: np.ones(n), 1.0),
    Scores("constant .5", lambda rng, n: np.full(n, 0.5), 0.5),
)


def discordant(better: float, worse: float) -> Scores:
    """Differences of scores of 0 and 1: so many of the questions got better, so many worse."""
    chances = [worse, 1 - better - worse, better]
    return Scores(
        f"0 or 1, {better:g} better, {worse:g} worse",
        lambda rng, n: rng.choice([-1.0, 0.0, 1.0], n, p=chances),
        better - worse,
        True,
    )


def graded_difference(name: str, first: Scores, second: Scores, same: float) -> Scores:
    """Differences of graded scores, of which a share is the same in both."""

    def draw(rng: np.random.Generator, n: int) -> NDArray[np.float64]:
        return np.where(rng.random(n) < same, 0.0, second.draw(rng, n) - first.draw(rng, n))

    return Scores(name, draw, (1 - same) * (second.mean - first.mean))


FAIR, BETTER = mixed("", 0.3, 0.4, 2, 2), mixed("", 0.4, 0.4, 2, 2)
PAIRED = (
    discordant(0.15, 0.1),
    discordant(0.3, 0.1),
    discordant(0.03, 0.02),
    discordant(0.05, 0.0),
    graded_difference("graded, F1, half the same", FAIR, BETTER, 0.5),
    graded_difference("graded, F1, .95 the same", FAIR, BETTER, 0.95),
    graded_difference("avg@4, harder to better", average(0.1, 0.9, 4), average(0.3, 0.9, 4), 0.0),
)


def held(scores: Scores, n: int, experiments: int, interval: Callable[[NDArray[np.float64]], Interval]) -> float:
    """The share of experiments whose interval holds the true mean."""
    rng = np.random.default_rng(n)
    found = (interval(scores.draw(rng, n)) for _ in range(experiments))
    return sum(one.low - 1e-12 <= scores.mean <= one.high + 1e-12 for one in found) / experiments


def wilson(values: NDArray[np.float64]) -> Interval:
    """For 0 or 1."""
    return wilson_interval(int(values.sum()), len(values))


def graded(values: NDArray[np.float64]) -> Interval:
    """For anything from 0 to 1."""
    return score_interval(values.tolist())


def paired(values: NDArray[np.float64]) -> Interval:
    """For differences of 0 and 1."""
    return paired_interval(int((values > 0).sum()), int((values < 0).sum()), len(values))


def resampled(values: NDArray[np.float64]) -> Interval:
    """For differences of anything else."""
    return bootstrap(values.tolist())


def is_attainable(p: float, n: int) -> bool:
    """Whether any series of numbers of successes of n tries has a probability of 94 to 96 %."""
    up_to = np.concatenate([[0.0], stats.binom.cdf(np.arange(n + 1), n, p)])
    series = up_to[None] - up_to[:, None]
    return bool(((series >= 0.94) & (series <= 0.96)).any())


def mark(share: float, scores: Scores, n: int) -> str:
    """A share, marked if it is not what it should be."""
    outside = "-" if share < 0.94 else "+" if share > 0.96 else ""
    star = "*" if outside and scores in KINDS and scores.is_binary and not is_attainable(scores.mean, n) else ""
    return f"{share:.3f}{outside}{star}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=2000)
    parser.add_argument("--paired", action="store_true", help="differences of two evaluations")
    options = parser.parse_args()
    kinds, binary, other = (PAIRED, paired, resampled) if options.paired else (KINDS, wilson, graded)
    print(f"{'differences' if options.paired else 'scores':40}" + "".join(f"n={n:<8}" for n in NUMBERS))
    for scores in kinds:
        interval = binary if scores.is_binary else other
        shares = [mark(held(scores, n, options.experiments, interval), scores, n) for n in NUMBERS]
        print(f"{scores.name:40}" + "".join(f"{share:10}" for share in shares), flush=True)


if __name__ == "__main__":
    main()
