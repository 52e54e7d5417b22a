"""Scores a policy on a declared set of questions: every question exactly once, failures counted, none dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from evoseek.agent.support import Check
from evoseek.eval.results import Results, Score, value_of
from evoseek.eval.sample import Drawn, check_ids, draw
from evoseek.eval.statistics import Interval
from evoseek.protocols import RewardFn
from evoseek.reward.functions import lowest_of
from evoseek.rollout.roller import Roller
from evoseek.text.normalization import is_right_refusal
from evoseek.types import Outcome, Question, Scored, Trajectory


@dataclass(frozen=True)
class Evaluation:
    """A finished evaluation: what was drawn for each question. `metric` names the reward function."""

    metric: str
    drawn: tuple[Drawn, ...]

    @cached_property
    def scored(self) -> Results:
        return Results(self.metric, len(self.drawn), 1, tuple(one.sample for one in self.drawn))

    @property
    def score(self) -> Score:
        """The mean score over all questions; nan if none was valid."""
        score = self.scored.score(self.metric)
        return score if score.n_invalid < score.n else replace(score, mean=float("nan"), interval=Interval(0.0, 1.0))

    def by_hops(self) -> dict[int, Score]:
        """Scores by `metadata["hops"]`, ascending; questions without hops in their metadata are left out."""
        return {int(hops): score for hops, score in self.scored.by("hops", self.metric).items()}

    def metrics(self) -> dict[str, float]:
        """Named metrics for a metric sink; `eval/reward` is the mean under `metric`."""
        score = self.score
        numbers = {"eval/reward": score.mean, "eval/n": score.n, "eval/n_invalid": score.n_invalid}
        numbers |= {f"eval/reward/hops_{hops}": score.mean for hops, score in self.by_hops().items()}
        return {name: float(value) for name, value in numbers.items()}

    def rewards(self) -> Mapping[str, float]:
        """Reward by question id, the metric's lowest for the invalid ones, as in the score: for paired tests."""
        return {sample.question: value_of(sample, self.metric) for sample in self.scored.samples}


async def evaluate(questions: Sequence[Question], *, roller: Roller, metric: str, reward: RewardFn) -> Evaluation:
    """Roll out every question once, all of them concurrently, and score them. The weights must not change meanwhile;
    rounding depends on what else the sampler is doing.

    A question whose rollout stays Invalid (`draw`) is listed as that, and counts as wrong.

    An environment without tools gives the score with search switched off. The random streams depend on the question and
    the roller's seed alone, so two policies are compared with the same random numbers.
    Raises DataError if two questions share an id: one of them would be counted twice.
    """
    check_ids(questions)
    sampler = roller.sampler
    sampler.update_weights(sampler.policy_version)  # free whatever is kept of earlier rollouts, before and after
    draw_one = partial(
        draw, answer=roller.one, metric=metric, reward=examining(reward, metric), lowest=lowest_of(reward)
    )
    drawing = (draw_one(question, 0) for question in questions)
    drawn = await asyncio.gather(*drawing)
    sampler.update_weights(sampler.policy_version)
    return Evaluation(metric, tuple(drawn))


def examining(reward: RewardFn, metric: str, check: Check | None = None) -> RewardFn:
    """A reward, called `metric`, for the questions of an evaluation: one that is marked as unanswerable is scored 1 for
    a refusal (`is_right_refusal`), and otherwise the reward's lowest value. With a check, the part `supported` is 1 if
    the passages that were found support the answer, or else 0."""

    async def examined(trajectory: Trajectory) -> Outcome:
        if trajectory.question.is_answerable:
            outcome = await reward(trajectory)
        else:
            value = 1.0 if is_right_refusal(trajectory) else lowest_of(reward)
            outcome = Scored(value, {metric: value})
        if check is None or not isinstance(outcome, Scored):
            return outcome
        support = await check(trajectory)
        return Scored(outcome.reward, {**outcome.parts, "supported": float(support.is_given)})

    return examined
