"""The results of an evaluation, as a function of its samples alone: scores by metric, by groups, and what they cost.

A question is the unit of every mean and interval: its samples are averaged first, then the questions. An Invalid sample
counts as the metric's lowest value, and is listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import comb
from statistics import fmean

from evoseek.corpus.language import is_refusal
from evoseek.eval.evaluate import Evaluation, Score, lowest_of, score_of
from evoseek.eval.risk import Answer, RiskCoverage
from evoseek.eval.sample import Sample, sample_of
from evoseek.reward.answer import GRADED, RIGHT_FROM

GROUPS: Mapping[str, Callable[[Sample], object]] = {
    "hops": lambda sample: sample.hops,
    "source": lambda sample: sample.source,
    "stop reason": lambda sample: sample.stop_reason,
    "searches": lambda sample: sample.searches,
}
"""What samples are grouped by; those without a value are in no group."""

COSTS = ("written", "read", "calls", "searches")
"""Numbers a sample: tokens that the model wrote and read, tool calls, searches."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Mean of a number over samples, and its sum; `n` samples had it."""

    mean: float
    total: float
    n: int


@dataclass(frozen=True)
class Results:
    """Results of `n` questions with `per_question` samples each. `samples` are sorted by question and number; none is
    missing once the evaluation is complete."""

    metric: str
    n: int
    per_question: int
    samples: tuple[Sample, ...]

    @classmethod
    def of(cls, evaluation: Evaluation) -> Results:
        """Those of an evaluation with one sample of each question."""
        metric = evaluation.metric
        made = (sample_of(one.question, one.trajectory, one.outcome, metric=metric) for one in evaluation.results)
        samples = tuple(sorted(made, key=lambda sample: sample.key))
        return cls(metric, len(samples), 1, samples)

    @property
    def lacking(self) -> int:
        """How many samples are missing. There are no scores before it is 0."""
        return self.n * self.per_question - len(self.samples)

    @property
    def invalid(self) -> list[Sample]:
        """The samples that failed."""
        return [sample for sample in self.samples if sample.invalid is not None]

    @property
    def is_final(self) -> bool:
        """Whether every sample is there and was scored."""
        return not self.lacking and not self.invalid

    @cached_property
    def metrics(self) -> list[str]:
        """Names of the metrics, the declared one first."""
        scored = next((sample.scores for sample in self.samples if sample.scores), {})
        return [self.metric, *(name for name in scored if name != self.metric)]

    def score(self, metric: str) -> Score:
        """Mean over the questions of the mean over their samples (avg@k)."""
        return score(self.samples, metric)

    def by(self, group: str, metric: str) -> dict[str, Score]:
        """Scores by a group of `GROUPS`, by its values in order."""
        found: dict[object, list[Sample]] = {}
        for sample in self.samples:
            if (value := GROUPS[group](sample)) is not None:
                found.setdefault(value, []).append(sample)
        ordered = sorted(found, key=lambda value: (isinstance(value, str), value))  # pyright: ignore[reportArgumentType]
        return {str(value): score(found[value], metric) for value in ordered}

    def pass_at(self, metric: str) -> dict[int, Score]:
        """The share of questions that k samples would solve, for k = 1, 2, 4, ... and all; for metrics of 0 and 1."""
        is_graded = metric in GRADED or any(value_of(sample, metric) not in (0.0, 1.0) for sample in self.samples)
        if self.per_question == 1 or is_graded:
            return {}
        right = {question: sum(values) for question, values in _by_question(self.samples, metric).items()}
        sizes = [2**power for power in range(self.per_question.bit_length()) if 2**power < self.per_question]
        return {
            k: score_of([pass_at_k(self.per_question, round(c), k) for c in right.values()])
            for k in (*sizes, self.per_question)
        }

    def recall(self) -> Score | None:
        """Mean share of the evidence that was found; None if no question's evidence is known."""
        return _score_of_known(self.samples, lambda sample: sample.recall)

    def all_found(self) -> Score | None:
        """Share of the samples that found all of the evidence."""
        return _score_of_known(self.samples, lambda one: None if one.recall is None else one.recall == 1.0)

    def answers(self) -> dict[str, dict[str, Score]]:
        """For the answerable and the unanswerable questions, if there are any, the share of each ending (`ending_of`);
        and of the samples that were checked, what `evoseek ask` shows by default: the answers that their passages
        support, `shown_right` and `shown_wrong`, and the others, `not_shown`."""
        found: dict[str, dict[str, Score]] = {}
        for kind, is_answerable in (("answerable", True), ("unanswerable", False)):
            own = [sample for sample in self.samples if sample.answerable is is_answerable]
            shares = {
                ending: _score_of_known(own, lambda sample, ending=ending: ending_of(sample, self.metric) == ending)
                for ending in ("answered_right", "answered_wrong", "refused")
            }
            checked = [sample for sample in own if sample.supported is not None]
            shares |= {
                shown: _score_of_known(checked, lambda sample, shown=shown: shown_of(sample, self.metric) == shown)
                for shown in ("shown_right", "shown_wrong", "not_shown")
            }
            if own:
                found[kind] = {name: share for name, share in shares.items() if share is not None}
        return found

    @cached_property
    def risk_coverage(self) -> RiskCoverage | None:
        """Risk and coverage over all samples; None if the certainty of no answer is known."""
        endings = ((sample, ending_of(sample, self.metric)) for sample in self.samples)
        answers = [
            Answer(sample.certainty, ending == "answered_wrong", sample.question)
            for sample, ending in endings
            if sample.certainty is not None and ending != "refused"
        ]
        return RiskCoverage.of(len(self.samples), answers) if answers else None

    def risks(self) -> dict[float, Score]:
        """The risk of the most certain quarter, half, three quarters of the answers, and of all; empty if there is no
        curve."""
        if self.risk_coverage is None:
            return {}
        return {share: _risk(self.risk_coverage.most_certain(share)) for share in (0.25, 0.5, 0.75, 1.0)}

    def costs(self) -> dict[str, Cost]:
        """Means and sums of the numbers of `COSTS` that are known."""
        return _costs(self.samples, COSTS)

    def seconds(self) -> dict[str, Cost]:
        """The same of the seconds."""
        return _costs(self.samples, ("seconds",))


def score(samples: Sequence[Sample], metric: str) -> Score:
    """Mean over questions of the mean over their samples; `n` counts questions, `n_invalid` samples."""
    values = _by_question(samples, metric)
    n_invalid = sum(sample.invalid is not None for sample in samples)
    return score_of([fmean(own) for own in values.values()], n_invalid, lowest=lowest_of(metric))


def value_of(sample: Sample, metric: str) -> float:
    """A sample's value by a metric; the lowest one if it is Invalid."""
    return sample.scores[metric] if sample.invalid is None else lowest_of(metric)


def pass_at_k(samples: int, right: int, k: int) -> float:
    """The chance that of k samples, drawn without replacement from those of a question, one is right: 1 - C(n - c, k) /
    C(n, k), which is unbiased (Chen et al., arXiv 2107.03374)."""
    return 1.0 - comb(samples - right, k) / comb(samples, k)


def _by_question(samples: Iterable[Sample], metric: str) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {}
    for sample in samples:
        values.setdefault(sample.question, []).append(value_of(sample, metric))
    return values


def ending_of(sample: Sample, metric: str) -> str:
    """What became of a question: `answered_right` by the metric, `refused` (see `is_refusal`) or `answered_wrong`, as
    every answer to an unanswerable question is, every rollout without an answer and every Invalid sample."""
    if sample.answerable and value_of(sample, metric) >= RIGHT_FROM:
        return "answered_right"
    return "refused" if sample.invalid is None and is_refusal(sample.answer) else "answered_wrong"


def shown_of(sample: Sample, metric: str) -> str:
    """What `evoseek ask` makes of a checked sample by default: `shown_right` or `shown_wrong` if its passages support
    the answer, else `not_shown`."""
    if not sample.supported:
        return "not_shown"
    return "shown_right" if ending_of(sample, metric) == "answered_right" else "shown_wrong"


def _score_of_known(samples: Iterable[Sample], value: Callable[[Sample], float | None]) -> Score | None:
    known: dict[str, list[float]] = {}
    n_invalid = 0
    for sample in samples:
        if (found := value(sample)) is not None:
            known.setdefault(sample.question, []).append(float(found))
            n_invalid += sample.invalid is not None
    return score_of([fmean(own) for own in known.values()], n_invalid) if known else None


def _risk(answers: Iterable[Answer]) -> Score:
    wrong: dict[str, list[float]] = {}
    for answer in answers:
        wrong.setdefault(answer.question, []).append(float(answer.is_wrong))
    return score_of([fmean(own) for own in wrong.values()])


def _costs(samples: Sequence[Sample], names: Sequence[str]) -> dict[str, Cost]:
    found: dict[str, Cost] = {}
    for name in names:
        if values := [float(value) for sample in samples if (value := getattr(sample, name)) is not None]:
            found[name] = Cost(fmean(values), sum(values), len(values))
    return found
