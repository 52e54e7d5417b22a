"""The questions of a step: the seed and earlier questions determine them, so a resumed run asks the same."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from itertools import islice
from typing import cast

from evoseek.assembly.settings import QuestionSettings
from evoseek.errors import ConfigError, RunError
from evoseek.types import Question

_KEY_LENGTH = 64  # of a SHA-256 in hexadecimal


@dataclass(slots=True)
class Passes:
    """Counts of how often each item (question, demonstration) was taken, in every pass over a set of items, by id.

    A pass belongs to its set: every draw from the same items continues it, in any stage of a run and in any number;
    another set has its own pass. What a step draws is reserved until `count` tells what was taken; steps that draw
    earlier (rollouts ahead of training) get other items. A run's checkpoints keep the counts, not the reservations: a
    resumed run draws again.
    """

    _taken: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    _reserved: dict[int, dict[str, list[str]]] = field(default_factory=dict[int, dict[str, list[str]]])

    def draw(self, ids: Sequence[str], *, seed: int, step: int, size: int) -> list[int]:
        """Return the places of `size` (at most all) different items: the least often taken, in a random order each
        round.

        A draw for a step replaces earlier draws from these items for that and later steps.
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
        """Count a step's taken items; forget that the others were drawn."""
        for key, drawn in self._reserved.pop(step, {}).items():
            self._taken.setdefault(key, Counter()).update(id for id in drawn if id in taken)

    def state(self) -> dict[str, dict[str, int]]:
        return {key: dict(counts) for key, counts in self._taken.items()}

    def restore(self, state: Mapping[str, Mapping[str, int]]) -> None:
        """Restore from `state`; an empty mapping resets. Raises RunError for anything else."""
        if any(len(key) != _KEY_LENGTH for key in state):
            raise RunError(
                "The run's checkpoint, from another version of evoseek, does not record which questions were used. "
                "Resume the run with that version, or train in a new directory."
            )
        self._reserved = {}
        self._taken = {key: Counter(counts) for key, counts in state.items()}


@dataclass(frozen=True, slots=True)
class QuestionOrder:
    """The order of questions: every question once, in a random order, before any comes again.

    With `by`, a metadata field, each of its values has its share of a step: by default an equal one. Shares are rounded
    to whole questions by the largest remainder, the same in every step. Questions of different values alternate, so
    that the beginning of a step is balanced too. Each value has its own seed: otherwise two values with equally many
    questions would always be paired.
    """

    by: str = ""
    shares: Mapping[str, float] = field(default_factory=dict[str, float])

    @classmethod
    def of(cls, settings: QuestionSettings) -> QuestionOrder:
        return cls(settings.balance_by, settings.shares)

    def __call__(
        self, questions: Sequence[Question], *, seed: int, step: int, size: int, passes: Passes
    ) -> list[Question]:
        """Return `size` different questions, determined by the arguments. Steps count from 1; `passes` are the earlier
        steps'. Raises ConfigError if there are too few."""
        if not self.by:
            return _next(questions, seed=seed, step=step, size=size, passes=passes)
        groups = self._groups(questions)
        drawn: list[tuple[float, str, Question]] = []
        for value, count in apportioned(self._shares(groups), size).items():
            if count > len(groups[value]):
                raise ConfigError(
                    f"A step draws {count} questions with {self.by} = {value} (questions.shares), but there are only "
                    f"{len(groups[value])}. Give more of these, a smaller share, or a smaller questions.per_step.",
                )
            if count:
                own_seed = random.Random(f"{seed}/{self.by}/{value}").getrandbits(63)
                chosen = _next(groups[value], seed=own_seed, step=step, size=count, passes=passes)
                drawn += [((place + 0.5) / count, value, question) for place, question in enumerate(chosen)]
        return [question for *_, question in sorted(drawn, key=lambda item: item[:2])]

    def most(self, questions: Sequence[Question]) -> int:
        """Return the most of these questions that a step can draw."""
        if not self.by:
            return len(questions)
        groups = self._groups(questions)
        shares = self._shares(groups)
        for size in range(len(questions), 0, -1):
            if all(count <= len(groups[value]) for value, count in apportioned(shares, size).items()):
                return size
        return 0

    def _groups(self, questions: Sequence[Question]) -> dict[str, list[Question]]:
        groups: dict[str, list[Question]] = {value: [] for value in self.shares}
        for question in questions:
            value = label(question, self.by)
            if value is None:
                raise ConfigError(
                    f"questions.balance_by is {self.by}, but the question {question.id} has no {self.by} in its "
                    "metadata. Add it to the file, or leave out questions.balance_by (or the recipe that sets it)."
                )
            groups.setdefault(value, []).append(question)
        return groups

    def _shares(self, groups: Mapping[str, Sequence[Question]]) -> Mapping[str, float]:
        """Return the shares in a fixed order: ties of remainders must not depend on the order of keys in a file."""
        return dict(sorted((self.shares or dict.fromkeys(groups, 1.0)).items()))


def chosen(questions: Sequence[Question], where: Mapping[str, object]) -> list[Question]:
    """Return the questions whose metadata have these values (a list: one of them). Raises ConfigError for none."""
    wanted = {key: {str(value) for value in _many(values)} for key, values in where.items()}
    found = [q for q in questions if all(label(q, key) in values for key, values in wanted.items())]
    if found:
        return found
    known = "; ".join(f"{key}: {', '.join(_known(questions, key)) or 'in none of them'}" for key in where)
    raise ConfigError(
        f"questions.where = {dict(where)} selects none of the {len(questions)} questions. Their metadata hold "
        f"{known}. Correct questions.where.",
        code="questions.none_chosen",
    )


def label(question: Question, key: str) -> str | None:
    """Return a metadata field of a question as text; None if missing. Every question has `answerable`."""
    value = {"answerable": question.is_answerable, **question.metadata}.get(key)
    return None if value is None else str(value)


def apportioned(shares: Mapping[str, float], count: int) -> dict[str, int]:
    """Return whole numbers in the ratio of the shares that sum to `count` (Hamilton's method)."""
    largest_share = max(shares.values())  # divided by first: the sum of huge shares may overflow
    relative = {name: share / largest_share for name, share in shares.items()}
    exact = {name: count * share / math.fsum(relative.values()) for name, share in relative.items()}
    whole = {name: math.floor(value) for name, value in exact.items()}
    largest = sorted(exact, key=lambda name: whole[name] - exact[name])
    return whole | {name: whole[name] + 1 for name in largest[: count - sum(whole.values())]}


def _next(questions: Sequence[Question], *, seed: int, step: int, size: int, passes: Passes) -> list[Question]:
    """Return the next questions of the pass. Raises ConfigError if there are too few for the step."""
    if len(questions) < size:
        raise ConfigError(
            f"A step draws {size} different questions, but there are only {len(questions)}. Give more questions, or "
            f"set questions.per_step to at most {len(questions)}.",
            code="questions.too_few",
        )
    places = passes.draw([question.id for question in questions], seed=seed, step=step, size=size)
    return [questions[place] for place in places]


def _many(values: object) -> Sequence[object]:
    return tuple(cast("Sequence[object]", values)) if isinstance(values, list | tuple) else (values,)


def _known(questions: Sequence[Question], key: str) -> list[str]:
    return sorted({value for question in questions if (value := label(question, key)) is not None})[:10]


@lru_cache(maxsize=64)
def _key(ids: tuple[str, ...]) -> str:
    """Return the key of a set of ids, in any order."""
    return sha256("\n".join(sorted(ids)).encode(errors="surrogatepass")).hexdigest()


@lru_cache(maxsize=16)
def _shuffled(total: int, seed: str) -> Sequence[int]:
    order = list(range(total))
    random.Random(seed).shuffle(order)
    return order
