"""Scores a policy on a declared set of questions: every question exactly once, failures counted, none dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evoseek.errors import DataError
from evoseek.eval.support import Check
from evoseek.protocols import RewardFn
from evoseek.reward.answer import is_right_refusal
from evoseek.reward.format import BROKEN
from evoseek.rollout.roller import Roller
from evoseek.statistics import Interval, score_interval, wilson_interval
from evoseek.types import Invalid, Outcome, Question, Scored, Trajectory


@dataclass(frozen=True, slots=True)
class Result:
    """One question, one trajectory, one outcome."""

    question: Question
    trajectory: Trajectory
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Score:
    """A mean with everything that is needed to interpret it. `n` counts all items, `n_invalid` those that failed for
    reasons outside what is scored; the mean is nan if all failed.

    An evaluation's mean is over all n questions: an invalid one counts as the metric's lowest score. Otherwise a policy
    that fails where it would be wrong anyway would score higher than one that does not.
    """

    mean: float
    interval: Interval
    n: int
    n_invalid: int


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A finished evaluation. `metric` names the reward function, `temperature` is the sampling temperature."""

    metric: str
    temperature: float
    results: tuple[Result, ...]

    @property
    def score(self) -> Score:
        """Over all questions."""
        return _score(self.results, self._lowest)

    def by_hops(self) -> dict[int, Score]:
        """Scores by `metadata["hops"]`, ascending; questions without hops in their metadata are left out."""
        groups: dict[int, list[Result]] = {}
        for result in self.results:
            hops = result.question.metadata.get("hops")
            if isinstance(hops, int):
                groups.setdefault(hops, []).append(result)
        return {hops: _score(groups[hops], self._lowest) for hops in sorted(groups)}

    @property
    def _lowest(self) -> float:
        return lowest_of(self.metric)

    def metrics(self) -> dict[str, float]:
        """Named metrics for a metric sink; `eval/reward` is the mean under `metric`."""
        score = self.score
        numbers = {"eval/reward": score.mean, "eval/n": score.n, "eval/n_invalid": score.n_invalid}
        numbers |= {f"eval/reward/hops_{hops}": score.mean for hops, score in self.by_hops().items()}
        return {name: float(value) for name, value in numbers.items()}

    def rewards(self) -> Mapping[str, float]:
        """Reward by question id, the metric's lowest for the invalid ones, as in the score: for paired tests."""
        return {result.question.id: _reward(result.outcome, self._lowest) for result in self.results}


async def evaluate(questions: Sequence[Question], *, roller: Roller, metric: str, reward: RewardFn) -> Evaluation:
    """Roll out every question once, all of them concurrently, and score them. The weights must not change meanwhile;
    rounding depends on what else the sampler is doing.

    A question whose rollout stays Invalid after its refills is listed as that, and counts as wrong.

    An environment without tools gives the score with search switched off. The random streams depend on the question and
    the roller's seed alone, so two policies are compared with the same random numbers.
    Raises DataError if two questions share an id: one of them would be counted twice.
    """
    if len({question.id for question in questions}) != len(questions):
        raise DataError("Two questions of the evaluation set share an id. Give every question an id of its own.")
    sampler = roller.sampler
    sampler.update_weights(sampler.policy_version)  # free whatever is kept of earlier rollouts, before and after
    groups = await asyncio.gather(
        *(
            roller.group(question, size=1, reward=examining(reward, metric), key=f"evaluation/{question.id}")
            for question in questions
        )
    )
    sampler.update_weights(sampler.policy_version)
    results = (
        Result(question, group.trajectories[0], group.outcomes[0])
        for question, group in zip(questions, groups, strict=True)
    )
    return Evaluation(metric, roller.temperature, tuple(results))


def examining(reward: RewardFn, metric: str, check: Check | None = None) -> RewardFn:
    """A reward, called `metric`, for the questions of an evaluation: one that is marked as unanswerable is scored 1 for
    a refusal (`is_right_refusal`), and otherwise the metric's lowest value. With a check, the part `supported` is 1 if
    the passages that were found support the answer, or else 0."""

    async def examined(trajectory: Trajectory) -> Outcome:
        if trajectory.question.is_answerable:
            outcome = await reward(trajectory)
        else:
            value = 1.0 if is_right_refusal(trajectory) else lowest_of(metric)
            outcome = Scored(value, {metric: value})
        if check is None or not isinstance(outcome, Scored):
            return outcome
        support = await check(trajectory)
        return Scored(outcome.reward, {**outcome.parts, "supported": float(support.is_given)})

    return examined


def _reward(outcome: Outcome, lowest: float) -> float:
    return outcome.reward if isinstance(outcome, Scored) else lowest


def _score(results: Sequence[Result], lowest: float) -> Score:
    n_invalid = sum(isinstance(result.outcome, Invalid) for result in results)
    if n_invalid == len(results):
        return Score(float("nan"), Interval(0.0, 1.0), len(results), n_invalid)
    return score_of([_reward(result.outcome, lowest) for result in results], n_invalid, lowest=lowest)


def score_of(values: Sequence[float], n_invalid: int = 0, *, lowest: float = 0.0) -> Score:
    """The mean of values from `lowest` to 1, with its interval: Wilson's if all are 0 or 1."""
    if lowest == 0 and all(value in (0.0, 1.0) for value in values):
        interval = wilson_interval(round(sum(values)), len(values))
    else:
        interval = score_interval(values, low=lowest)
    return Score(sum(values) / len(values), interval, len(values), n_invalid)


def lowest_of(metric: str) -> float:
    """The lowest value of a metric; the highest is 1."""
    return BROKEN if metric == "format_f1" else 0.0
