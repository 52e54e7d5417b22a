"""Risk and coverage: how often answers are wrong if only those are given that are certain enough.

Samples are sorted by the certainty of their answers. `coverage` is the share of all samples whose answer is at least so
certain, `risk` the share of these answers that is wrong (El-Yaniv and Wiener, JMLR 11, 2010; Geifman and El-Yaniv,
arXiv 1705.08500). A refusal, and a rollout without an answer, is never covered, so the curve ends at the share of
samples that were answered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that was given: its certainty, whether it is wrong, and the question that it is to."""

    certainty: float
    is_wrong: bool
    question: str


@dataclass(frozen=True, slots=True)
class Point:
    """A point of the curve: of all samples, the share `coverage` has an answer of at least this certainty, and of these
    answers the share `risk` is wrong."""

    certainty: float
    coverage: float
    risk: float


@dataclass(frozen=True, slots=True)
class RiskCoverage:
    """The curve of `samples` samples, by the answers that were given, the most certain one first."""

    samples: int
    answers: tuple[Answer, ...]

    @classmethod
    def of(cls, samples: int, answers: Sequence[Answer]) -> RiskCoverage:
        return cls(samples, tuple(sorted(answers, key=lambda answer: -answer.certainty)))

    @property
    def points(self) -> list[Point]:
        """A point for each certainty, the highest first: answers of the same one are covered together."""
        points: list[Point] = []
        covered = wrong = 0
        for certainty, alike in groupby(self.answers, key=lambda answer: answer.certainty):
            own = list(alike)
            covered, wrong = covered + len(own), wrong + sum(answer.is_wrong for answer in own)
            points.append(Point(certainty, covered / self.samples, wrong / covered))
        return points

    @property
    def area(self) -> float:
        """The area under the curve of risk over coverage (AURC), divided by the coverage that it ends at: the mean over
        the answers of the risk among those that are at least as certain. If certainty says nothing, it is the risk of
        all answers on average."""
        risks = {point.certainty: point.risk for point in self.points}
        return fmean(risks[answer.certainty] for answer in self.answers)

    def most_certain(self, share: float) -> Sequence[Answer]:
        """A share (above 0) of the answers, rounded up; those that are as certain as the last of them come with it."""
        least = self.answers[math.ceil(share * len(self.answers)) - 1].certainty
        return [answer for answer in self.answers if answer.certainty >= least]
