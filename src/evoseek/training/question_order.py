"""The questions of a step: they follow from the seed and what was asked before, so a resumed run asks the same ones."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

from evoseek.errors import ConfigError
from evoseek.training.pass_rates import PassRates
from evoseek.training.settings import QuestionSettings
from evoseek.types import Question


class Order(Protocol):
    """Chooses the questions of a step."""

    def __call__(
        self, questions: Sequence[Question], *, seed: int, step: int, size: int, rates: PassRates
    ) -> list[Question]:
        """`size` different ones of the questions, as a function of the arguments alone. Steps count from 1; `rates` are
        those of the steps before, with their `passes`. Raises ConfigError if there are too few."""
        ...


class UniformOrder:
    """Every question once, in a random order, before any comes again."""

    def __call__(
        self, questions: Sequence[Question], *, seed: int, step: int, size: int, rates: PassRates
    ) -> list[Question]:
        """The next ones of the pass over these questions."""
        check_enough(questions, size)
        places = rates.passes.draw([question.id for question in questions], seed=seed, step=step, size=size)
        return [questions[place] for place in places]


class DifficultyOrder:
    """Draws questions that are sometimes right and sometimes wrong more often than others (sampling for learnability,
    Foster et al., arXiv 2502.12272; Rutherford et al., 2408.15099).

    The weight of a question is the learnability p (1 - p) of its pass rate p, as expected after the rollouts so far
    under a uniform prior of p: of n rollouts r were right,

        weight = (1 + r) (1 + n - r) / ((2 + n) (3 + n))

    It is never 0: also what was always wrong is tried again. A step's questions are drawn without replacement: the ones
    with the smallest e / weight, e exponentially distributed (Efraimidis and Spirakis 2006).
    """

    def __call__(
        self, questions: Sequence[Question], *, seed: int, step: int, size: int, rates: PassRates
    ) -> list[Question]:
        """Drawn by weight."""
        check_enough(questions, size)
        rng = random.Random(f"{seed}/questions/difficulty/{step}")
        keys = [rng.expovariate(1.0) / self.weight(*rates.of(question.id)) for question in questions]
        return [questions[index] for index in heapq.nsmallest(size, range(len(keys)), key=keys.__getitem__)]

    @staticmethod
    def weight(right: float, number: int) -> float:
        """The expected learnability of a question of whose rollouts so many were right."""
        return (1 + right) * (1 + number - right) / ((2 + number) * (3 + number))


@dataclass(frozen=True, slots=True)
class BalancedOrder:
    """Gives each value of a metadata field its share of a step's questions, which another order chooses among those
    with that value.

    Shares are rounded to whole questions by the largest remainder, the same in every step; without any, all values have
    the same one. Questions of different values alternate, so that the beginning of a step is balanced too, and each
    value has a seed of its own: with the same one, two values with as many questions would be paired for ever.
    """

    order: Order
    by: str
    shares: Mapping[str, float] = field(default_factory=dict[str, float])

    def __call__(
        self, questions: Sequence[Question], *, seed: int, step: int, size: int, rates: PassRates
    ) -> list[Question]:
        """As many of each value as its share is. Raises ConfigError if there are fewer."""
        groups = self._groups(questions)
        drawn: list[tuple[float, str, Question]] = []
        for value, count in apportioned(self._shares(groups), size).items():
            if count > len(groups[value]):
                raise ConfigError(
                    f"A step draws {count} questions with {self.by} = {value} (questions.shares), but there are only "
                    f"{len(groups[value])}. Give more of them, a smaller share, or a smaller questions.per_step."
                )
            if count:
                own_seed = random.Random(f"{seed}/{self.by}/{value}").getrandbits(63)
                chosen = self.order(groups[value], seed=own_seed, step=step, size=count, rates=rates)
                drawn += [((place + 0.5) / count, value, question) for place, question in enumerate(chosen)]
        return [question for *_, question in sorted(drawn, key=lambda item: item[:2])]

    def most(self, questions: Sequence[Question]) -> int:
        """How many questions a step can draw."""
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
        """In an order of their own: ties of remainders must not depend on how a file orders its keys."""
        return dict(sorted((self.shares or dict.fromkeys(groups, 1.0)).items()))


def ordered(settings: QuestionSettings, order: Order) -> Order:
    """The order, balanced if the settings ask for it."""
    return BalancedOrder(order, settings.balance_by, settings.shares) if settings.balance_by else order


def most_of(order: Order, questions: Sequence[Question]) -> int:
    """How many questions of these a step can draw at most."""
    return order.most(questions) if isinstance(order, BalancedOrder) else len(questions)


def chosen(questions: Sequence[Question], where: Mapping[str, object]) -> list[Question]:
    """The questions whose metadata have these values (a list: one of them). Raises ConfigError if there are none."""
    wanted = {key: {str(value) for value in _many(values)} for key, values in where.items()}
    found = [q for q in questions if all(label(q, key) in values for key, values in wanted.items())]
    if found:
        return found
    known = "; ".join(f"{key}: {', '.join(_known(questions, key)) or 'in none of them'}" for key in where)
    raise ConfigError(
        f"None of the {len(questions)} questions is chosen by questions.where = {dict(where)}. Their metadata hold "
        f"{known}. Correct questions.where."
    )


def label(question: Question, key: str) -> str | None:
    """The value of a field of a question's metadata as a text; None without it. Every question has `answerable`."""
    value = {"answerable": question.is_answerable, **question.metadata}.get(key)
    return None if value is None else str(value)


def apportioned(shares: Mapping[str, float], count: int) -> dict[str, int]:
    """Whole numbers in the ratio of the shares that add up to `count` (Hamilton's method)."""
    largest_share = max(shares.values())  # by which all are divided first: the sum of huge ones is no number
    relative = {name: share / largest_share for name, share in shares.items()}
    exact = {name: count * share / math.fsum(relative.values()) for name, share in relative.items()}
    whole = {name: math.floor(value) for name, value in exact.items()}
    largest = sorted(exact, key=lambda name: whole[name] - exact[name])
    return whole | {name: whole[name] + 1 for name in largest[: count - sum(whole.values())]}


def check_enough(questions: Sequence[Question], size: int) -> None:
    """Raises ConfigError if there are fewer questions than a step needs."""
    if len(questions) < size:
        raise ConfigError(
            f"A step draws {size} different questions, but there are only {len(questions)}. Give more questions, or "
            f"set questions.per_step to at most {len(questions)}."
        )


def _many(values: object) -> Sequence[object]:
    return tuple(cast("Sequence[object]", values)) if isinstance(values, list | tuple) else (values,)


def _known(questions: Sequence[Question], key: str) -> list[str]:
    """The values that a field has, the first ten of them."""
    return sorted({value for question in questions if (value := label(question, key)) is not None})[:10]
