"""Which questions a step trains on: a function of seed and step alone, so a resumed run draws the same ones."""

from __future__ import annotations

import random
from collections.abc import Sequence

from evoseek.errors import ConfigError
from evoseek.types import Question


def questions_of_step(questions: Sequence[Question], *, seed: int, step: int, size: int) -> list[Question]:
    """The `size` questions of a step (steps count from 1), without replacement within an epoch.

    Every epoch has an order of its own; the few left over when `size` does not divide the number of questions sit out
    that epoch. Raises ConfigError if there are fewer questions than a step needs.
    """
    steps_per_epoch = len(questions) // size
    if steps_per_epoch == 0:
        raise ConfigError(
            f"A step draws {size} different questions, but there are only {len(questions)}. Give more questions, or "
            f"set questions.per_step to at most {len(questions)}."
        )
    epoch, place = divmod(step - 1, steps_per_epoch)
    order = list(range(len(questions)))
    random.Random(f"{seed}/questions/{epoch}").shuffle(order)
    return [questions[index] for index in order[place * size : (place + 1) * size]]
