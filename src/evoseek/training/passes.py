"""Passes over questions: every one of a set is asked once before any is asked again."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from itertools import islice


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
        key = sha256("\n".join(sorted(ids)).encode(errors="surrogatepass")).hexdigest()
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


@lru_cache(maxsize=16)
def _shuffled(total: int, seed: str) -> Sequence[int]:
    order = list(range(total))
    random.Random(seed).shuffle(order)
    return order
