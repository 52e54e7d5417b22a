"""The questions of a step: a function of seed and step alone, so a resumed run draws the same ones."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache

from evoseek.errors import ConfigError
from evoseek.types import Question


def questions_of_step(questions: Sequence[Question], *, seed: int, step: int, size: int) -> list[Question]:
    """The `size` different questions of a step (steps count from 1): every question once, then every one once more, ...

    Every such epoch has its own order. Where `size` does not divide the number of questions, a step takes the last ones
    of an epoch and the first of the next. Raises ConfigError if there are fewer questions than a step needs.
    """
    if len(questions) < size:
        raise ConfigError(
            f"A step draws {size} different questions, but there are only {len(questions)}. Give more questions, or "
            f"set questions.per_step to at most {len(questions)}."
        )
    epoch, place = divmod((step - 1) * size, len(questions))
    this, following = _orders(len(questions), size, seed).of(epoch)
    drawn = this[place : place + size]
    return [questions[index] for index in (*drawn, *following[: size - len(drawn)])]


class _Orders:
    """The orders of two epochs in a row. Each follows from the one before, so steps are best asked for in their order:
    an earlier epoch begins again with the first."""

    def __init__(self, total: int, size: int, seed: int) -> None:
        self._total, self._size, self._seed = total, size, seed
        self._start()

    def of(self, epoch: int) -> tuple[list[int], list[int]]:
        """The order of an epoch, and of the next."""
        if epoch < self._epoch:
            self._start()
        while self._epoch < epoch:
            self._epoch += 1
            self._this, self._following = self._following, self._after(self._following, self._epoch + 1)
        return self._this, self._following

    def _start(self) -> None:
        self._epoch = 0
        self._this = self._after([], 0)
        self._following = self._after(self._this, 1)

    def _after(self, before: list[int], epoch: int) -> list[int]:
        """The order of an epoch. One that begins within a step begins with questions that this step has not taken."""
        order = list(range(self._total))
        random.Random(f"{self._seed}/questions/{epoch}").shuffle(order)
        if count := epoch * self._total % self._size:
            taken = set(before[-count:])
            new = [index for index in order if index not in taken][: self._size - count]
            first = set(new)
            order = [*new, *(index for index in order if index not in first)]
        return order


_orders = lru_cache(maxsize=4)(_Orders)
