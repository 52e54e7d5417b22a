"""A few timed rollouts, from which the time of a step is estimated."""

from __future__ import annotations

import asyncio
from time import perf_counter

from evoseek.doctor.finding import Finding, fault, fine, refused, warning
from evoseek.doctor.patient import Patient
from evoseek.errors import EvoseekError
from evoseek.run import asked_engine, opened
from evoseek.training.memory_needs import step_rollouts
from evoseek.types import Question, Trajectory

_COUNT = 4
_WITH_UPDATE = 1.4  # a step over its rollouts: 2.23 s over 1.60 in recipes/dr-zero/README.md


def probe(patient: Patient) -> Finding:
    """Load the model, roll a question out a few times at once, and scale that to a step. Nothing is written."""
    settings, each = patient.settings, step_rollouts(patient.settings)
    question = Question("probe", "Who is the mayor of Kalo?", ())
    try:
        with opened(settings) as context:
            roller = context.solver(asked_engine(context))

            async def roll() -> list[Trajectory]:
                return await asyncio.gather(*(roller.one(question, f"probe-{number}") for number in range(_COUNT)))

            started = perf_counter()
            rolled = asyncio.run(roll())
            seconds = (perf_counter() - started) / _COUNT
    except EvoseekError as error:
        return refused("probe", error)
    if failures := [trajectory.failure for trajectory in rolled if trajectory.failure]:
        words = f"{len(failures)} of {_COUNT} rollouts failed: {failures[0]}"
        return fault("probe", words, "Mend what failed: such a rollout is Invalid in training, and is not learnt from.")
    how = f"{_COUNT} rollouts took {seconds:.2f} s each"
    if not each:
        return warning("probe", f"{how}; the settings do not say how many a step has.", "Train a step to know more.")
    step = seconds * each * _WITH_UPDATE
    minutes = step * settings.planned_steps / 60
    estimate = (
        f"{each} in a step and {_WITH_UPDATE - 1:.0%} more to train: {step:.0f} s a step, {minutes:.0f} min in all"
    )
    return fine("probe", f"{how}; {estimate}, if rollouts are like these. More at a time are faster.")
