"""Valid questions of earlier steps, for the places of rejected ones (Search Self-play, arXiv 2510.18821, table 5).

Kept for ever, they are met too often, and the solver overfits; cleared every few steps, they were best.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

from evoseek.corpus.questions import question_row
from evoseek.types import Question


class ReplayBuffer:
    """Questions by id, without a limit. What is drawn follows from them and a seed, not from the order of adding."""

    def __init__(self, questions: Iterable[Question] = ()) -> None:
        self._questions: dict[str, Question] = {}
        self.add(questions)

    def __len__(self) -> int:
        return len(self._questions)

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

    def clear_at(self, step: int, every: int) -> None:
        """Forget all after the steps `every`, 2 * `every`, ... (counted from 1)."""
        if step % every == 0:
            self._questions.clear()

    def to_json(self) -> dict[str, Any]:
        """The state as an object for JSON."""
        return {"questions": [question_row(question) for question in self._questions.values()]}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> ReplayBuffer:
        """The buffer of such an object. Raises KeyError or TypeError for another object."""
        return ReplayBuffer(
            Question(row["id"], row["question"], tuple(row["golden_answers"]), row["metadata"])
            for row in data["questions"]
        )
