"""The rollouts of a step on given questions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evoseek.learner.distributed import ALONE, Ranks
from evoseek.protocols import RewardFn
from evoseek.rollout.record import TrajectoryWriter
from evoseek.rollout.roller import Roller, failed_if_nothing_found
from evoseek.types import Question, TrajectoryGroup


@dataclass(frozen=True, slots=True)
class QuestionRollouts:
    """Rolls questions out: `group_size` times each, all concurrently.

    `label` may rescore a complete group. With several `ranks` each takes a share of the questions, and all have all
    groups in the end. If the engine finds nothing for any of them, all are Invalid.
    """

    roller: Roller
    reward: RewardFn
    trajectories: TrajectoryWriter
    group_size: int = 8
    ranks: Ranks = ALONE
    label: Callable[[TrajectoryGroup], TrajectoryGroup] | None = None

    async def __call__(self, questions: Sequence[Question], step: int) -> list[TrajectoryGroup]:
        """One group per question, in the questions' order. No question is rolled out twice in a step."""
        groups = await asyncio.gather(*(self._group(question, step) for question in self.ranks.share(questions)))
        return failed_if_nothing_found(self.ranks.join(groups, list[TrajectoryGroup]))

    def record(self, step: int, groups: Sequence[TrajectoryGroup]) -> None:
        """Write the groups that a step has come to."""
        self.trajectories.write(step, groups)

    async def _group(self, question: Question, step: int) -> TrajectoryGroup:
        key = f"step-{step:06d}/{question.id}"
        group = await self.roller.group(question, size=self.group_size, reward=self.reward, key=key)
        return self.label(group) if self.label else group
