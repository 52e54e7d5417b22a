"""The results of an evaluation, determined by its samples: scores by metric and by group, and costs.

Questions are the units of every mean and interval: first a question's samples are averaged, then the questions. An
Invalid sample counts as the metric's lowest value, and is listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import comb
from statistics import fmean

from evoseek.config.registry import KINDS, find
from evoseek.eval.draw import Sample
from evoseek.eval.statistics import Interval, score_interval, wilson_interval
from evoseek.reward.functions import lowest_of
from evoseek.text.language import is_refusal
from evoseek.text.normalization import GRADED, RIGHT_FROM

GROUPS: Mapping[str, Callable[[Sample], object]] = {
    "hops": lambda sample: sample.hops,
    "source": lambda sample: sample.source,
    "stop reason": lambda sample: sample.stop_reason,
    "searches": lambda sample: sample.searches,
}
"""The groupings of samples; samples without a value are in no group."""

_KINDS = (("answerable", True, False), ("sentences", True, True), ("unanswerable", False, False))
_OF_LONG: Mapping[str, Callable[[Sample], float | None]] = {
    "cited": lambda sample: sample.cited,
    "recall": lambda sample: sample.recall,
}

COSTS = ("written", "read", "calls", "searches")
"""Numbers of each sample: tokens that the model wrote and read, tool calls, searches."""


OF_SENTENCES = "guarded_substring_match"
"""The metric for models that were not trained to answer in few words: a sentence is never an exact match."""


MATCHES = ("exact_match", "substring_match", OF_SENTENCES)
"""Metrics without meaning for answers of sentences, which are scored by F1."""


@dataclass(frozen=True, slots=True)
class Score:
    """A mean with everything needed to interpret it. `n` counts all items, `n_invalid` items that failed outside what
    is scored; the mean is nan if all failed.

    An evaluation's mean is over all n questions: an invalid one counts as the metric's lowest score. Otherwise failing
    on questions that it would answer wrongly would raise a policy's score.
    """

    mean: float
    interval: Interval
    n: int
    n_invalid: int


@dataclass(frozen=True, slots=True)
class Cost:
    """A number's mean and sum over the `n` samples that have it."""

    mean: float
    total: float
    n: int


@dataclass(frozen=True)
class Results:
    """Results of `n` questions with `per_question` samples each. `samples` are sorted by question and number, and
    complete once the evaluation is."""

    metric: str
    n: int
    per_question: int
    samples: tuple[Sample, ...]

    @property
    def invalid(self) -> list[Sample]:
        return [sample for sample in self.samples if sample.invalid is not None]

    @property
    def is_final(self) -> bool:
        """Whether every sample is there and was scored."""
        return len(self.samples) == self.n * self.per_question and not self.invalid

    @cached_property
    def metrics(self) -> list[str]:
        """The names of the metrics, the declared one first."""
        scored = max((sample.scores for sample in self.samples), key=len, default=dict[str, float]())
        lengths = {sample.is_long for sample in self.samples if sample.answerable}
        others = (name for name in scored if name != self.metric)
        return [self.metric, *(name for name in others if lengths != {True} or name not in MATCHES)]

    def of(self, metric: str) -> list[Sample]:
        """Return the samples that a metric scores."""
        return [sample for sample in self.samples if metric not in MATCHES or not sample.is_long]

    def score(self, metric: str) -> Score:
        """Average the questions' means over their samples (avg@k)."""
        return score(self.of(metric), metric)

    def by(self, group: str, metric: str) -> dict[str, Score]:
        found: dict[object, list[Sample]] = {}
        for sample in self.of(metric):
            if (value := GROUPS[group](sample)) is not None:
                found.setdefault(value, []).append(sample)
        ordered = sorted(found, key=lambda value: (isinstance(value, str), value))  # pyright: ignore[reportArgumentType]
        return {str(value): score(found[value], metric) for value in ordered}

    def pass_at(self, metric: str) -> dict[int, Score]:
        """Return the share of questions that k samples would solve, for k = 1, 2, 4, ..., all; for metrics of 0 and
        1."""
        is_graded = metric in GRADED or any(value_of(sample, metric) not in (0.0, 1.0) for sample in self.of(metric))
        if self.per_question == 1 or is_graded:
            return {}
        found = _by_question((sample.question, value_of(sample, metric)) for sample in self.of(metric))
        right = {question: sum(values) for question, values in found.items()}
        sizes = [2**power for power in range(self.per_question.bit_length()) if 2**power < self.per_question]
        return {
            k: score_of([pass_at_k(self.per_question, round(c), k) for c in right.values()])
            for k in (*sizes, self.per_question)
        }

    def evidence(self) -> dict[str, Score]:
        """Return the mean share of found evidence (`recall`), and the share of questions with all of it (`all_found`);
        empty if no question's evidence is known."""
        recall = _score_of_known(self.samples, lambda sample: sample.recall)
        every = _score_of_known(self.samples, lambda one: None if one.recall is None else one.recall == 1.0)
        return {name: score for name, score in (("recall", recall), ("all_found", every)) if score is not None}

    def kinds(self) -> dict[str, dict[str, Score]]:
        """Return the scores of short answers by a match and of answers of sentences by F1, the latter with the shares
        of right citations and of found evidence. Empty without answers of sentences."""
        long = [sample for sample in self.samples if sample.is_long]
        short = [sample for sample in self.of("exact_match") if sample.answerable]
        match = self.metric if self.metric in MATCHES else "exact_match"
        found = {"sentences": {"f1": score(long, "f1")}} if long else {}
        for name, value in _OF_LONG.items():
            if (known := _score_of_known(long, value)) is not None:
                found["sentences"][name] = known
        return {"short": {match: score(short, match)}, **found} if short and long else found

    def answers(self) -> dict[str, dict[str, Score]]:
        """Return the share of each ending (`ending_of`) among answerable questions with short answers, with answers of
        sentences, and unanswerable ones; for checked samples also what `evoseek ask` shows by default (`shown_of`)."""
        found: dict[str, dict[str, Score]] = {}
        for kind, is_answerable, is_long in _KINDS:
            own = [one for one in self.samples if one.answerable is is_answerable and one.is_long is is_long]
            rights = ("right", "wrong") if not is_long else ("",)
            shares = {
                ending: _score_of_known(own, lambda sample, ending=ending: ending_of(sample, self.metric) == ending)
                for ending in (*(f"answered_{right}".rstrip("_") for right in rights), "refused")
            }
            checked = [sample for sample in own if sample.supported is not None]
            shares |= {
                shown: _score_of_known(checked, lambda sample, shown=shown: shown_of(sample, self.metric) == shown)
                for shown in (*(f"shown_{right}".rstrip("_") for right in rights), "not_shown")
            }
            if own:
                found[kind] = {name: share for name, share in shares.items() if share is not None}
        return found

    def refusals(self) -> dict[str, dict[str, Score]]:
        """Return precision and recall of abstaining, by the model and (`not_shown`) after the check, as a detector of
        unanswerable questions; empty if all questions are unanswerable, or none."""
        if len({sample.answerable for sample in self.samples}) < 2:
            return {}
        checked = [sample for sample in self.samples if sample.supported is not None]
        found: dict[str, dict[str, Score]] = {}
        for name, own, ending in (("refused", self.samples, ending_of), ("not_shown", checked, shown_of)):
            withheld = {one.key for one in own if ending(one, self.metric) == name}
            refused, none = [one for one in own if one.key in withheld], [one for one in own if not one.answerable]
            shares = {
                "precision": _score_of_known(refused, lambda one: not one.answerable),
                "recall": _score_of_known(none, lambda one, keys=withheld: one.key in keys),
            }
            found[name] = {measure: share for measure, share in shares.items() if share is not None}
        return found

    def in_sentences(self) -> int:
        """Count the answers that contain a golden answer, but fail exact match, if that is the metric."""
        if self.metric != "exact_match":
            return 0
        return sum(one.scores.get(OF_SENTENCES, 0.0) > value_of(one, self.metric) for one in self.of(self.metric))

    def costs(self, names: Sequence[str] = COSTS) -> dict[str, Cost]:
        """Return means and sums of these numbers of samples, if known."""
        found: dict[str, Cost] = {}
        for name in names:
            if values := [float(value) for sample in self.samples if (value := getattr(sample, name)) is not None]:
                found[name] = Cost(fmean(values), sum(values), len(values))
        return found


def score(samples: Sequence[Sample], metric: str) -> Score:
    """Average the questions' means over their samples; `n` counts questions, `n_invalid` samples."""
    n_invalid = sum(sample.invalid is not None for sample in samples)
    return _mean_over_questions(
        [(sample.question, value_of(sample, metric)) for sample in samples], n_invalid, lowest=lowest_value(metric)
    )


def value_of(sample: Sample, metric: str) -> float:
    """Return a sample's value by a metric; the lowest one if Invalid."""
    return sample.scores[metric] if sample.invalid is None else sample.scores.get(metric, lowest_value(metric))


def pass_at_k(samples: int, right: int, k: int) -> float:
    """Return the chance that one of k samples, drawn without replacement from a question's, is right: the unbiased 1 -
    C(n - c, k) / C(n, k) (Chen et al., arXiv 2107.03374)."""
    return 1.0 - comb(samples - right, k) / comb(samples, k)


def _by_question(values: Iterable[tuple[str, float]]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for question, value in values:
        found.setdefault(question, []).append(value)
    return found


def _mean_over_questions(values: Iterable[tuple[str, float]], n_invalid: int = 0, *, lowest: float = 0.0) -> Score:
    return score_of([fmean(own) for own in _by_question(values).values()], n_invalid, lowest=lowest)


def ending_of(sample: Sample, metric: str) -> str:
    """Classify a sample: `answered_right` by the metric, `refused` (see `is_refusal`) or `answered_wrong`, also for
    every answer to an unanswerable question, every rollout without an answer and every Invalid sample. Answers of
    sentences are neither right nor wrong: `answered`, or `unanswered` without one."""
    if sample.answerable and not sample.is_long and value_of(sample, metric) >= RIGHT_FROM:
        return "answered_right"
    if sample.invalid is None and is_refusal(sample.answer):
        return "refused"
    is_answered = sample.invalid is None and sample.answer is not None
    return ("answered" if is_answered else "unanswered") if sample.is_long else "answered_wrong"


def shown_of(sample: Sample, metric: str) -> str:
    """Classify what `evoseek ask` does with a checked sample by default: `shown_right` or `shown_wrong` (`shown` for
    sentences) if its passages support the answer, else `not_shown`."""
    if not sample.supported:
        return "not_shown"
    if sample.is_long:
        return "shown"
    return "shown_right" if ending_of(sample, metric) == "answered_right" else "shown_wrong"


def _score_of_known(samples: Iterable[Sample], value: Callable[[Sample], float | None]) -> Score | None:
    known = [(sample, found) for sample in samples if (found := value(sample)) is not None]
    n_invalid = sum(sample.invalid is not None for sample, _ in known)
    return _mean_over_questions([(one.question, float(found)) for one, found in known], n_invalid) if known else None


def score_of(values: Sequence[float], n_invalid: int = 0, *, lowest: float = 0.0) -> Score:
    """Average values from `lowest` to 1, with the interval of the mean: Wilson's if all are 0 or 1."""
    if lowest == 0 and all(value in (0.0, 1.0) for value in values):
        interval = wilson_interval(round(sum(values)), len(values))
    else:
        interval = score_interval(values, low=lowest)
    return Score(sum(values) / len(values), interval, len(values), n_invalid)


def lowest_value(metric: str) -> float:
    """Return the lowest value of a metric; the highest is 1. A user's own metric is not imported: its lowest value is
    in the samples."""
    return lowest_of(find("reward", metric)) if metric in KINDS["reward"].parts else 0.0
