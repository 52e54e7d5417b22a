"""The held-out scores of a policy, as training measures them: every question exactly once, none is dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from evoseek.eval.draw import Drawn, check_ids, draw
from evoseek.eval.results import Results, Score, value_of
from evoseek.eval.statistics import Interval
from evoseek.protocols import RewardFn
from evoseek.rollout.roller import Roller
from evoseek.types import Question


@dataclass(frozen=True)
class HeldOutScores:
    """What was drawn for each question. `metric` names the reward function."""

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
        """Return scores by `metadata["hops"]`, ascending; questions without hops are left out."""
        return {int(hops): score for hops, score in self.scored.by("hops", self.metric).items()}

    def metrics(self) -> dict[str, float]:
        """Return named metrics for a metric sink; `eval/reward` is the mean under `metric`."""
        score = self.score
        numbers = {"eval/reward": score.mean, "eval/n": score.n, "eval/n_invalid": score.n_invalid}
        numbers |= {f"eval/reward/hops_{hops}": score.mean for hops, score in self.by_hops().items()}
        return {name: float(value) for name, value in numbers.items()}

    def rewards(self) -> Mapping[str, float]:
        """Return rewards by question id, the metric's lowest for Invalid ones as in the score: for paired tests."""
        return {sample.question: value_of(sample, self.metric) for sample in self.scored.samples}


async def held_out_scores(
    questions: Sequence[Question], *, roller: Roller, metric: str, reward: RewardFn
) -> HeldOutScores:
    """Roll out every question once, all of them concurrently, and score them. The weights must not change meanwhile;
    rounding depends on what else the sampler is doing.

    A question whose rollout stays Invalid (`draw`) is listed as that, and counts as wrong.

    An environment without tools gives the score with search switched off. The random streams depend on the question and
    the roller's seed alone, so two policies are compared with the same random numbers.
    Raises DataError if two questions share an id: one of them would be counted twice.
    """
    check_ids(questions)
    sampler = roller.sampler
    sampler.update_weights(sampler.policy_version)  # free what is kept of earlier rollouts, before and after
    drawing = (draw(question, 0, answer=roller.one, metric=metric, reward=reward) for question in questions)
    drawn = await asyncio.gather(*drawing)
    sampler.update_weights(sampler.policy_version)
    return HeldOutScores(metric, tuple(drawn))
