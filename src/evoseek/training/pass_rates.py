"""How often each question was asked, and answered right, so far in a run."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from itertools import islice
from typing import Any

from evoseek.errors import RunError
from evoseek.reward.shaping import unshaped
from evoseek.types import Scored, TrajectoryGroup


@dataclass(slots=True)
class Passes:
    """How often each item was taken, in every pass over a set of items (questions, demonstrations), by their ids.

    A pass belongs to its set: whoever draws from the same items continues it, in any stage of a run and however many
    are drawn at a time, and another set has a pass of its own. What a step draws is reserved until `count` says which
    of it were taken; steps that draw before that (rollouts ahead of training) get other items. The counts are kept in a
    run's checkpoints, the reservations are not: a resumed run draws again.
    """

    _taken: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    _reserved: dict[int, dict[str, list[str]]] = field(default_factory=dict[int, dict[str, list[str]]])

    def draw(self, ids: Sequence[str], *, seed: int, step: int, size: int) -> list[int]:
        """The places of `size` (at most all) different items: those taken least often, in a random order of each round.

        A draw for a step replaces earlier draws from these items for that step, and all for later steps.
        """
        key = _key(tuple(ids))
        self._reserved = {number: sets for number, sets in self._reserved.items() if number <= step}
        self._reserved.setdefault(step, {}).pop(key, None)
        taken = Counter(self._taken.get(key))
        for sets in self._reserved.values():
            taken.update(sets.get(key, ()))
        rounds, places = min(taken[id] for id in ids), list[int]()
        while len(places) < size:
            order, drawn = _shuffled(len(ids), f"{seed}/questions/{rounds}"), set(places)
            due = (place for place in order if taken[ids[place]] <= rounds and place not in drawn)
            places += islice(due, size - len(places))
            rounds += 1
        self._reserved[step][key] = [ids[place] for place in places]
        return places

    def count(self, step: int, taken: Collection[str]) -> None:
        """Count those of a step's items that were taken; the others are as if they had not been drawn."""
        for key, drawn in self._reserved.pop(step, {}).items():
            self._taken.setdefault(key, Counter()).update(id for id in drawn if id in taken)

    def state(self) -> dict[str, dict[str, int]]:
        """The counts as plain JSON."""
        return {key: dict(counts) for key, counts in self._taken.items()}

    def restore(self, state: Mapping[str, Mapping[str, int]]) -> None:
        """Become what `state` gave; of an empty mapping, as new."""
        self._reserved = {}
        self._taken = {key: Counter(counts) for key, counts in state.items()}


@dataclass(frozen=True, slots=True)
class PassRates:
    """For each question that was rolled out, by id, the sum of its rewards (between 0 and 1) and their number; and the
    `passes` over the questions.

    It is kept in a run's checkpoints. Invalid rollouts are not counted, nor are penalties.
    """

    passes: Passes = field(default_factory=Passes)
    _counts: dict[str, tuple[float, int]] = field(default_factory=dict[str, tuple[float, int]])

    def observe(self, step: int, groups: Sequence[TrajectoryGroup]) -> None:
        """Count the questions and the rollouts of a step."""
        self.passes.count(step, {trajectory.question.id for group in groups for trajectory in group.trajectories})
        for group in groups:
            for trajectory, outcome in zip(group.trajectories, group.outcomes, strict=True):
                if isinstance(outcome, Scored):
                    right, number = self.of(trajectory.question.id)
                    reward = min(1.0, max(0.0, unshaped(outcome)))
                    self._counts[trajectory.question.id] = right + reward, number + 1

    def of(self, question_id: str) -> tuple[float, int]:
        """The sum of a question's rewards, and their number: (0.0, 0) if it was never rolled out."""
        return self._counts.get(question_id, (0.0, 0))

    def state(self) -> dict[str, Any]:
        """Everything as plain JSON."""
        rates = {key: [right, number] for key, (right, number) in self._counts.items()}
        return {"rates": rates, "passes": self.passes.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what `state` gave; of an empty mapping, as new. Raises RunError for anything else."""
        if state and set(state) != {"rates", "passes"}:
            raise RunError(
                "The run's checkpoint does not record which questions were used: another version of evoseek wrote it. "
                "Resume the run with that version, or train in a new directory."
            )
        self.passes.restore(state.get("passes") or {})
        self._counts.clear()
        self._counts.update(
            {key: (float(right), int(number)) for key, (right, number) in state.get("rates", {}).items()}
        )


@lru_cache(maxsize=64)
def _key(ids: tuple[str, ...]) -> str:
    """The name of a set of ids, whatever their order."""
    return sha256("\n".join(sorted(ids)).encode(errors="surrogatepass")).hexdigest()


@lru_cache(maxsize=16)
def _shuffled(total: int, seed: str) -> Sequence[int]:
    order = list(range(total))
    random.Random(seed).shuffle(order)
    return order
