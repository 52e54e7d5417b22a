"""Valid questions of earlier steps, for the places of rejected ones (Search Self-play, arXiv 2510.18821, table 5).

Kept for ever, they are met too often, and the solver overfits; cleared every few steps, they were best.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from evoseek.types import Question


class ReplayBuffer:
    """Questions by id, without a limit. What is drawn follows from them and a seed, not from the order of adding."""

    def __init__(self, questions: Iterable[Question] = ()) -> None:
        self._questions: dict[str, Question] = {}
        self.add(questions)

    def add(self, questions: Iterable[Question]) -> None:
        """Keep these questions too. One with the id of an earlier one takes its place."""
        self._questions |= {question.id: question for question in questions}

    def draw(self, count: int, seed: str) -> list[Question]:
        """So many questions in random order, none twice before all were drawn once; an empty buffer gives none.

        `seed` names the draw: equal seeds draw alike.
        """
        rng = random.Random(f"{seed}/replay")
        pool = [self._questions[identifier] for identifier in sorted(self._questions)]
        drawn: list[Question] = []
        while pool and len(drawn) < count:
            drawn += rng.sample(pool, min(len(pool), count - len(drawn)))
        return drawn
