"""A few timed rollouts, and in self-play proposals: does the model do the task at all, and how long is a step?"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator
from time import perf_counter
from typing import Any, TypeVar

from evoseek.assembly.memory_needs import step_rollouts
from evoseek.cli.doctor.checks import Diagnosis, DoctorContext, fault, fine, refused, warning
from evoseek.errors import EvoseekError
from evoseek.selfplay.proposing import Writing
from evoseek.selfplay.settings import GameSettings
from evoseek.training.plan import TrainingContext
from evoseek.types import Question, Trajectory

T = TypeVar("T")
_COUNT = 4
_REMEDY = (
    "Give a model that follows instructions, or show it the task first (`evoseek sft`): reinforcement learning cannot "
    "teach what is never tried."
)
_LIMIT_S = 60.0
_WITH_UPDATE = 1.4  # a step over its rollouts: 2.23 s over 1.60 in recipes/dr-zero/README.md


def probe(context: DoctorContext) -> Iterator[Diagnosis]:
    """Load the model and let it answer a few times, and propose if the system has a proposer, within a minute each.
    Write nothing."""
    try:
        with TrainingContext(context.settings) as training:
            yield _rollouts(training)
            if isinstance(context.settings, GameSettings):
                yield _proposals(training)
    except EvoseekError as error:
        yield refused("probe", error)


def _rollouts(context: TrainingContext) -> Diagnosis:
    """Report whether the policy answers with the tool, and the time of a step."""
    settings, each = context.settings, step_rollouts(context.settings)
    roller, question = context.solver(context.searched), Question("probe", "Who is the mayor of Kalo?", ())

    async def roll() -> list[Trajectory]:
        return await asyncio.gather(*(roller.one(question, f"probe-{number}") for number in range(_COUNT)))

    started = perf_counter()
    rolled = _within(roll())
    seconds = (perf_counter() - started) / _COUNT
    if rolled is None:
        words = f"{_COUNT} rollouts did not end within {_LIMIT_S:.0f} s."
        return warning("probe", words, "Lower rollout.max_total_tokens, or train on a faster machine.")
    if failures := [trajectory.failure for trajectory in rolled if trajectory.failure]:
        words = f"{len(failures)} of {_COUNT} rollouts failed: {failures[0]}"
        return fault("probe", words, "Repair what failed: in training such a rollout is Invalid and not in the loss.")
    searched = sum(bool(trajectory.results) for trajectory in rolled)
    answered = sum(trajectory.answer is not None for trajectory in rolled)
    how = f"{searched} of {_COUNT} rollouts used the tool, {answered} gave an answer, in {seconds:.2f} s each"
    if not searched:
        return warning("probe", f"{how}.", _REMEDY)
    if not each:
        return warning("probe", f"{how}; the number in a step is unknown.", "Train a step to know more.")
    step = seconds * each * _WITH_UPDATE
    minutes = step * settings.planned_steps / 60
    each_step = f"{each} in a step and {_WITH_UPDATE - 1:.0%} more to train: {step:.0f} s a step"
    return fine("probe", f"{how}; {each_step}, {minutes:.0f} min in all, if all rollouts are like these.")


def _proposals(context: TrainingContext) -> Diagnosis:
    writing = Writing.of(context)
    episodes = _within(writing.play(writing.tasks(1)[:_COUNT], "probe", solve=False))
    if episodes is None:
        return warning("proposals", f"{_COUNT} proposals did not end within {_LIMIT_S:.0f} s.", _REMEDY)
    reasons = Counter(str(episode.rejected) for episode in episodes if episode.rejected is not None)
    valid = sum(episode.question is not None for episode in episodes)
    words = f"{valid} of {len(episodes)} proposals became a question"
    if reasons:
        words += "; rejected: " + ", ".join(f"{reason} ({count})" for reason, count in reasons.most_common())
    return fine("proposals", words) if valid else warning("proposals", f"{words}.", _REMEDY)


def _within(coroutine: Coroutine[Any, Any, T]) -> T | None:
    """Await the result; None after a minute."""
    try:
        return asyncio.run(asyncio.wait_for(coroutine, _LIMIT_S))
    except TimeoutError:
        return None
