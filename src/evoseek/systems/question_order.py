"""Which questions a step trains on: a function of seed and step alone, so a resumed run draws the same ones."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import count, islice

from evoseek.errors import ConfigError
from evoseek.types import Question


def questions_of_step(questions: Sequence[Question], *, seed: int, step: int, size: int) -> list[Question]:
    """The `size` different questions of a step (steps count from 1): every question once, then every one once more, ...

    Every such epoch has an order of its own. Where `size` does not divide the number of questions, a step takes the
    last ones of an epoch and the first of the next. Raises ConfigError if there are fewer questions than a step needs.
    """
    if len(questions) < size:
        raise ConfigError(
            f"A step draws {size} different questions, but there are only {len(questions)}. Give more questions, or "
            f"set questions.per_step to at most {len(questions)}."
        )
    epoch, place = divmod((step - 1) * size, len(questions))
    this, following = islice(_orders(len(questions), size, seed), epoch, epoch + 2)
    return [questions[index] for index in (*this, *following)[place : place + size]]


def _orders(total: int, size: int, seed: int) -> Iterator[list[int]]:
    """The order of every epoch. One that begins within a step begins with questions that this step has not taken."""
    before: list[int] = []
    for epoch in count():
        order = list(range(total))
        random.Random(f"{seed}/questions/{epoch}").shuffle(order)
        if taken := epoch * total % size:
            new = [index for index in order if index not in before[-taken:]][: size - taken]
            order = [*new, *(index for index in order if index not in new)]
        yield order
        before = order
