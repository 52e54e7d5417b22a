"""Draws what an evaluation lacks, many samples at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from evoseek.errors import ConfigError, DataError
from evoseek.eval.sample import Answerer, Key, Sample, draw
from evoseek.protocols import RewardFn
from evoseek.types import Outcome, Question, Trajectory

AT_ONCE = 256  # rollouts that have begun and not ended


def keys_of(questions: Sequence[Question], samples: int) -> list[Key]:
    """Every sample of an evaluation. Raises DataError if two questions share an id: one would be counted twice."""
    if len({question.id for question in questions}) != len(questions):
        raise DataError("Two questions of the evaluation set share an id. Give every question an id of its own.")
    return [(question.id, number) for number in range(samples) for question in questions]


def check_temperature(samples: int, temperature: float) -> None:
    """Raises ConfigError for several samples that would all be the same."""
    if samples > 1 and temperature == 0:
        raise ConfigError(
            f"{samples} samples of each question were asked for, but at temperature 0 they are all the same. Give a "
            "temperature above 0, or one sample."
        )


async def draw_missing(
    questions: Sequence[Question],
    samples: int,
    done: Collection[Key],
    *,
    answer: Answerer,
    metric: str,
    reward: RewardFn,
    keep: Callable[[Sample, Trajectory, Outcome], None],
) -> None:
    """Draw every sample that is not done, each once, `AT_ONCE` of them at a time; `keep` gets each as it is finished,
    with its rollout.

    An error that is no failure of a rollout ends it all; what was kept stays.
    """
    by_id, places = {question.id: question for question in questions}, asyncio.Semaphore(AT_ONCE)

    async def one(key: Key) -> None:
        async with places:
            keep(*await draw(by_id[key[0]], key[1], answer=answer, metric=metric, reward=reward))

    await asyncio.gather(*(one(key) for key in keys_of(questions, samples) if key not in done))
