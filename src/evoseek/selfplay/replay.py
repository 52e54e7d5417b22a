"""Valid questions of earlier steps, for the places of rejected ones (Search Self-play, arXiv 2510.18821, table 5)."""

from __future__ import annotations

import random
from collections.abc import Iterable

from evoseek.types import Question


def draw_again(questions: Iterable[Question], count: int, seed: str) -> list[Question]:
    """So many of the questions in random order, none twice before all were drawn once; none if there are none.

    What is drawn follows from them and the seed, not from their order.
    """
    rng = random.Random(f"{seed}/replay")
    pool = sorted(questions, key=lambda question: question.id)
    drawn: list[Question] = []
    while pool and len(drawn) < count:
        drawn += rng.sample(pool, min(len(pool), count - len(drawn)))
    return drawn
