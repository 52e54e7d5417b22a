import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evoseek.errors import ConfigError
from evoseek.training.question_order import questions_of_step
from evoseek.types import Question


def questions(n):
    return [Question(f"q{i}", f"question {i}", ("a",)) for i in range(n)]


@settings(deadline=None)
@given(total=st.integers(1, 30), size=st.integers(1, 8), seed=st.integers(0, 5))
def test_every_question_comes_once_before_any_comes_again_and_none_twice_in_a_step(total, size, seed):
    size = min(size, total)
    steps = [
        [question.id for question in questions_of_step(questions(total), seed=seed, step=step, size=size)]
        for step in range(1, 4 * total + 1)
    ]
    assert all(len(step) == len(set(step)) == size for step in steps)
    drawn = [name for step in steps for name in step]
    for first in range(0, len(drawn) - total + 1, total):
        assert len(set(drawn[first : first + total])) == total


def test_a_step_that_ends_an_epoch_begins_the_next_with_other_questions():
    """Five questions, four a step: step 2 has the one that step 1 left, and three of the four that step 1 had."""
    first, second = (
        {question.id for question in questions_of_step(questions(5), seed=0, step=step, size=4)} for step in (1, 2)
    )
    assert len(first & second) == 3
    assert first | second == {f"q{number}" for number in range(5)}


def test_a_step_depends_on_seed_and_step_alone():
    def draw(seed, step):
        return questions_of_step(questions(20), seed=seed, step=step, size=5)

    assert draw(1, 7) == draw(1, 7)
    assert draw(1, 7) != draw(2, 7)
    assert [draw(1, step) for step in range(1, 5)] != [draw(1, step) for step in range(5, 9)]


def test_too_few_questions():
    with pytest.raises(ConfigError, match="only 3"):
        questions_of_step(questions(3), seed=0, step=1, size=4)


def test_the_orders_stay_what_they_are():
    """A resumed run goes on with the order that it began with."""
    drawn = [questions_of_step(range(7), seed=0, step=step, size=3) for step in range(1, 13)]
    assert drawn == [
        [6, 2, 1], [5, 0, 4], [3, 2, 0], [4, 3, 5], [1, 6, 2], [6, 1, 0],
        [3, 4, 5], [2, 3, 0], [1, 4, 5], [6, 0, 3], [2, 1, 6], [4, 5, 2],
    ]  # fmt: skip
    drawn = [questions_of_step(range(5), seed=1, step=step, size=4) for step in (8, 2, 1, 5)]  # in any order
    assert drawn == [[3, 0, 4, 2], [0, 4, 2, 3], [1, 4, 2, 3], [1, 0, 4, 2]]


def test_an_epoch_is_shuffled_once(monkeypatch):
    """Twelve steps of 3 out of 7 are five epochs and the first question of the sixth."""
    shuffled = []

    class Counting(random.Random):
        def shuffle(self, x):
            shuffled.append(len(x))
            super().shuffle(x)

    monkeypatch.setattr(random, "Random", Counting)
    for step in range(1, 13):
        questions_of_step(range(7), seed=123, step=step, size=3)
    assert len(shuffled) == 6
