"""Tasks for proposers, from the passages or the answers of a corpus, and the groups that compare proposals.

An answer comes with the number of successive searches that lead away from it:

    search for the answer -> a passage about something else that mentions it -> search for that passage's title -> ...

A proposer with more searches than such steps could only invent something (Search Self-play leaves open how to match
answers and numbers of searches).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Generic, Literal, TypeVar

from evoseek.errors import ConfigError
from evoseek.protocols import PassageStore
from evoseek.questions.answers import TitleFinder, load_answers, mine_answers
from evoseek.rollout.environments import answer_task, task_of
from evoseek.selfplay.settings import GameSettings
from evoseek.types import Episode, Passage, Question, TrajectoryGroup

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class TaskSource(Generic[Item]):
    """An endless sequence of tasks for a proposer: every item of the pool (a passage, an answer) once an epoch, in a
    new order, with a requested number of hops or searches drawn by `ratio` (shares of 1, 2, ...; empty: always 0, the
    proposer's choice).

    `make(id, item, requested)` words the task. Each is given `copies` times (nested sampling). The seed alone
    determines a number's task. If the proposer has no room for a task (`can_ask`), the next item replaces it.
    """

    pool: Sequence[Item]
    make: Callable[[str, Item, int], Question]
    ratio: Sequence[float]
    seed: str
    copies: int = 1
    can_ask: Callable[[Question], bool] = lambda _: True

    def __call__(self, first: int, count: int, key: str) -> list[Question]:
        """Return the tasks `first` to `first + count - 1` (from 0), copies together; `key` begins their ids."""
        tasks: list[Question] = []
        orders: dict[int, list[int]] = {}
        for number in range(first, first + count):
            epoch, place = divmod(number, len(self.pool))
            if epoch not in orders:
                orders[epoch] = list(range(len(self.pool)))
                random.Random(f"{self.seed}/tasks/{epoch}").shuffle(orders[epoch])
            order = orders[epoch]
            places = (order[(place + later) % len(order)] for later in range(len(order)))
            task = self._task(f"{key}-{number - first:04d}", places, self._requested(number))
            made = task_of(task)
            tasks += [
                replace(task, id=f"{task.id}.{copy}" if self.copies > 1 else task.id, task=replace(made, id=task.id))
                for copy in range(self.copies)
            ]
        return tasks

    def _task(self, id: str, places: Iterable[int], requested: int) -> Question:
        """Return the first of these tasks that leaves the proposer room to write. Raises ConfigError."""
        tasks = (self.make(id, self.pool[place], requested) for place in places)
        found = next(filter(self.can_ask, tasks), None)
        if found is None:
            raise ConfigError(
                f"None of the {len(self.pool)} passages or answers leaves the proposer room to write: every prompt "
                "fills a rollout. Raise rollout.max_total_tokens, or use a shorter prompt."
            )
        return found

    def _requested(self, number: int) -> int:
        if not self.ratio:
            return 0
        hops = range(1, len(self.ratio) + 1)
        return random.Random(f"{self.seed}/requested/{number}").choices(hops, self.ratio)[0]


@dataclass(frozen=True, slots=True)
class SearchChain:
    """An answer, and the number of successive searches that lead away from it."""

    answer: str
    searches: int


def follow_back(answer: str, find: Callable[[str], Sequence[Passage]], most: int) -> SearchChain:
    """Follow, at most `most` times, the first passage found that mentions the query as whole words and is about
    something new. `find` gives a query's best passages."""
    seen = [answer.casefold()]
    while len(seen) <= most:
        sought = seen[-1]
        mentions = TitleFinder([sought])
        titles = (passage.title.casefold() for passage in find(sought) if mentions(passage.text))
        new = next((title for title in titles if title not in seen), None)
        if new is None:
            break
        seen.append(new)
    return SearchChain(answer, len(seen) - 1)


POOL = 200_000  # maximum number of passages for proposals; of a larger corpus, a random sample


def answer_tasks(
    settings: GameSettings, corpus: PassageStore, path: str, can_ask: Callable[[Question], bool] = lambda _: True
) -> TaskSource[SearchChain]:
    """Return tasks from an answer set: a file, or answers mined from the corpus; only answers that a search leads away
    from and whose tasks leave the proposer room (`can_ask`)."""
    ratio, seed = settings.proposer.ratio, settings.run.seed
    answers = load_answers(Path(path)) if path else mine_answers(corpus.passages())
    find = partial(corpus.find, k=settings.search.top_k)
    leads = [lead for answer in answers if (lead := follow_back(answer, find, len(ratio))).searches]
    if not leads:
        raise ConfigError(
            f"None of {len(answers)} answers (of {path or 'the corpus'}) can be worked back from: no search for "
            f"one in {settings.search.index} finds a passage about something else that mentions it. Give other "
            'answers, JSON lines such as {"answer": "Lisbon"}, with --set ssp.answers=FILE, or index more documents.'
        )

    far = [[lead for lead in leads if lead.searches >= searches] for searches in range(len(ratio) + 1)]

    def make(id: str, lead: SearchChain, searches: int) -> Question:
        """Make the task of this answer; if it does not lead far enough, of another answer that does, if any."""
        if lead.searches < searches and far[searches]:
            lead = random.Random(f"{seed}/lead/{id}").choice(far[searches])
        return answer_task(id, lead.answer, min(searches, lead.searches))

    return TaskSource(leads, make, ratio, str(seed), settings.proposer.per_task, can_ask)


def sample_passages(passages: Iterable[Passage], seed: int, most: int = POOL) -> list[Passage]:
    """Return all passages in order, or if there are more than `most`, `most` random ones, drawn in one reading."""
    rng, pool = random.Random(f"{seed}/pool"), list[Passage]()
    for number, passage in enumerate(passages):
        if len(pool) < most:
            pool.append(passage)
        elif (place := rng.randrange(number + 1)) < most:
            pool[place] = passage
    return pool


def proposal_groups(episodes: Sequence[Episode], by: Literal["requested", "task"]) -> list[TrajectoryGroup]:
    """Group the proposers' rollouts by their baseline: the same requested number (HRPO, Dr. Zero), or the same task
    (GRPO with nested sampling)."""
    groups: dict[str, list[Episode]] = {}
    for episode in episodes:
        task = task_of(episode.proposer.question)
        groups.setdefault(f"{by}-{task.requested if by == 'requested' else task.id}", []).append(episode)
    return [proposers_group(key, members) for key, members in groups.items()]


def proposers_group(key: str, episodes: Sequence[Episode]) -> TrajectoryGroup:
    """Return the proposers' rollouts of these episodes as one group."""
    return TrajectoryGroup(
        key,
        tuple(episode.proposer for episode in episodes),
        tuple(episode.outcome for episode in episodes),
        tuple(failed for episode in episodes for failed in episode.replaced),
    )


def solver_groups(episodes: Sequence[Episode]) -> list[TrajectoryGroup]:
    """Return the solver's attempts, one group per question."""
    return [episode.solvers for episode in episodes if episode.solvers is not None]


def check_groups(episodes: Sequence[Episode]) -> list[TrajectoryGroup]:
    """Return the readings that verified each question, for the record, not for training: one group per proposal, under
    the key `<the solvers' key>/checks`."""
    groups: list[TrajectoryGroup] = []
    for episode in episodes:
        if episode.checks:
            trajectories, outcomes = zip(*episode.checks, strict=True)
            key = trajectories[0].id.rpartition("/")[0]
            groups.append(TrajectoryGroup(f"{key}/checks", trajectories, outcomes))
    return groups
