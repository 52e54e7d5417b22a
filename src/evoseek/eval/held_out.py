"""The held-out scores of a policy during training: every question exactly once, none dropped."""

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
    """The samples of all held-out questions. `metric` names the reward function."""

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
        """Return rewards by question id for paired tests; Invalid ones get the metric's lowest, as in the score."""
        return {sample.question: value_of(sample, self.metric) for sample in self.scored.samples}


async def held_out_scores(
    questions: Sequence[Question], *, roller: Roller, metric: str, reward: RewardFn
) -> HeldOutScores:
    """Roll out every question once, concurrently, and score them. The weights must not change meanwhile; rounding
    depends on the sampler's other work.

    A question whose rollout stays Invalid (`draw`) is listed as Invalid, and counts as wrong.

    An environment without tools gives the score without search. Random streams depend only on the question and the
    roller's seed, so two policies are compared with the same random numbers. Raises DataError if two questions share an
    id: one would be counted twice.
    """
    check_ids(questions)
    sampler = roller.sampler
    sampler.update_weights(sampler.policy_version)  # free the state of earlier rollouts, before and after
    drawing = (draw(question, 0, answer=roller.one, metric=metric, reward=reward) for question in questions)
    drawn = await asyncio.gather(*drawing)
    sampler.update_weights(sampler.policy_version)
    return HeldOutScores(metric, tuple(drawn))
