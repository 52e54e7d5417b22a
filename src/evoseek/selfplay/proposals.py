"""The tasks of proposers, and the groups within which proposals are compared."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar

from evoseek.env.environments import task_of
from evoseek.types import Episode, Question, TrajectoryGroup

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class TaskSource(Generic[Item]):
    """Tasks for a proposer, numbered without end: every item of the pool (a passage, an answer) once an epoch, in an
    order of the epoch's own, each with a requested number of hops or searches drawn by `ratio` (shares of 1, 2, ...;
    without any the number is always 0: the proposer's choice).

    `make(id, item, requested)` words the task. Each is given `copies` times (nested sampling). What a number stands for
    follows from the seed alone.
    """

    pool: Sequence[Item]
    make: Callable[[str, Item, int], Question]
    ratio: Sequence[float]
    seed: str
    copies: int = 1

    def __call__(self, first: int, count: int, key: str) -> list[Question]:
        """The tasks `first` to `first + count - 1` (from 0), all copies of one together; `key` begins the ids."""
        tasks: list[Question] = []
        orders: dict[int, list[int]] = {}
        for number in range(first, first + count):
            epoch, place = divmod(number, len(self.pool))
            if epoch not in orders:
                orders[epoch] = list(range(len(self.pool)))
                random.Random(f"{self.seed}/tasks/{epoch}").shuffle(orders[epoch])
            item = self.pool[orders[epoch][place]]
            task = self.make(f"{key}-{number - first:04d}", item, self._requested(number))
            made = task_of(task)
            tasks += [
                replace(task, id=f"{task.id}.{copy}" if self.copies > 1 else task.id, task=replace(made, id=task.id))
                for copy in range(self.copies)
            ]
        return tasks

    def _requested(self, number: int) -> int:
        if not self.ratio:
            return 0
        hops = range(1, len(self.ratio) + 1)
        return random.Random(f"{self.seed}/requested/{number}").choices(hops, self.ratio)[0]


def proposal_groups(episodes: Sequence[Episode], by: Literal["requested", "task"]) -> list[TrajectoryGroup]:
    """The proposers' rollouts as groups with a common baseline: those of the same requested number (HRPO, Dr. Zero),
    or those of the same task (GRPO with nested sampling)."""
    groups: dict[str, list[Episode]] = {}
    for episode in episodes:
        task = task_of(episode.proposer.question)
        groups.setdefault(f"{by}-{task.requested if by == 'requested' else task.id}", []).append(episode)
    return [
        TrajectoryGroup(
            key,
            tuple(episode.proposer for episode in members),
            tuple(episode.outcome for episode in members),
            tuple(failed for episode in members for failed in episode.replaced),
        )
        for key, members in groups.items()
    ]


def solver_groups(episodes: Sequence[Episode]) -> list[TrajectoryGroup]:
    """The solver's attempts, one group per question."""
    return [episode.solvers for episode in episodes if episode.solvers is not None]


def check_groups(episodes: Sequence[Episode]) -> list[TrajectoryGroup]:
    """The readings that verified each question, only for the record: they are not trained on. One group per proposal,
    under the key `<the solvers' key>/checks`."""
    groups: list[TrajectoryGroup] = []
    for episode in episodes:
        if episode.checks:
            trajectories, outcomes = zip(*episode.checks, strict=True)
            key = trajectories[0].id.rpartition("/")[0]
            groups.append(TrajectoryGroup(f"{key}/checks", trajectories, outcomes))
    return groups
