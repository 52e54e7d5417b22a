"""Valid questions of earlier steps, which replace rejected ones (Search Self-play, arXiv 2510.18821, table 5)."""

from __future__ import annotations

import random
from collections.abc import Iterable

from evoseek.types import Question


def draw_again(questions: Iterable[Question], count: int, seed: str) -> list[Question]:
    """`count` of the questions in random order, none twice before all were drawn once; empty if there are none.

    The draw is determined by the questions and the seed, not by their order.
    """
    rng = random.Random(f"{seed}/replay")
    pool = sorted(questions, key=lambda question: question.id)
    drawn: list[Question] = []
    while pool and len(drawn) < count:
        drawn += rng.sample(pool, min(len(pool), count - len(drawn)))
    return drawn
