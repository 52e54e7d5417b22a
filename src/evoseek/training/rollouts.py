"""The rollouts of a step on given questions, and rollouts of later steps during training."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Generic, TypeVar

from evoseek.learner.distributed import ALONE, Ranks
from evoseek.protocols import GroupLabel, RewardFn
from evoseek.rollout.record import TrajectoryWriter
from evoseek.rollout.roller import Roller, failed_if_nothing_found
from evoseek.types import Question, TrajectoryGroup


@dataclass(frozen=True, slots=True)
class QuestionRollouts:
    """Rollouts of questions: `group_size` each, all concurrent; the last `put_off` put off their first answer.

    `label` may rescore a complete group. Each of several `ranks` takes a share of the questions; in the end all have
    all groups. If the engine finds nothing for any of them, all are Invalid.
    """

    roller: Roller
    reward: RewardFn
    trajectories: TrajectoryWriter
    group_size: int = 8
    ranks: Ranks = ALONE
    label: GroupLabel | None = None
    put_off: int = 0

    async def __call__(self, questions: Sequence[Question], step: int) -> list[TrajectoryGroup]:
        """Return one group per question, in order. No question is rolled out twice in a step."""
        groups = await asyncio.gather(*(self._group(question, step) for question in self.ranks.share(questions)))
        return failed_if_nothing_found(self.ranks.join(groups, list[TrajectoryGroup]))

    async def _group(self, question: Question, step: int) -> TrajectoryGroup:
        key = f"step-{step:06d}/{question.id}"
        group = await self.roller.group(
            question, size=self.group_size, reward=self.reward, key=key, put_off=self.put_off
        )
        return await self.label(group, self.reward) if self.label else group


Collected = TypeVar("Collected")


class Ahead(Generic[Collected]):
    """A collector of the rollouts of a step and of up to `steps` later ones (at most `last`), which continue while a
    step trains (rollout.max_staleness).

        step t trains weights t - 1 into weights t; its rollouts began with weights t - 1 - n or later

        rollouts of t        |=====|
        rollouts of t + 1          |=========|             n = 1: they begin with the weights t - 1, at the latest when
        training of t              |===|                   step t trains
        weights t                      *                   turns from here on are sampled with them
        training of t + 1                    |===|

    A task collects a step's rollouts in the event loop; the optimizer steps run in a thread. Untrained rollouts are not
    in a checkpoint: a resumed run makes them again, with the weights that it resumes from.
    """

    def __init__(self, steps: int, last: int) -> None:
        self.steps, self.last = steps, last
        self._begun: dict[int, asyncio.Task[tuple[Collected, float]]] = {}

    async def take(self, step: int, collect: Callable[[int], Awaitable[Collected]]) -> tuple[Collected, float]:
        """Return what `collect(step)` gives, and its seconds; later steps continue. Call it step by step, with the
        weights of the step before. Raises what `collect` raised."""
        for later in range(step, min(step + self.steps, self.last) + 1):
            if later not in self._begun:
                self._begun[later] = asyncio.create_task(_timed(collect, later))
        return await self._begun.pop(step)

    async def drop(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        tasks = [*self._begun.values()]
        self._begun.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _timed(collect: Callable[[int], Awaitable[Collected]], step: int) -> tuple[Collected, float]:
    started = perf_counter()
    return await collect(step), perf_counter() - started
