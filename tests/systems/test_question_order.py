import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.errors import ConfigError
from evoseek.systems.question_order import questions_of_step
from evoseek.types import Question


def questions(n):
    return [Question(f"q{i}", f"question {i}", ("a",)) for i in range(n)]


@given(total=st.integers(1, 30), size=st.integers(1, 8), seed=st.integers(0, 5), epoch=st.integers(0, 3))
def test_an_epoch_is_without_replacement(total, size, seed, epoch):
    if size > total:
        return
    steps = total // size
    drawn = [
        question.id
        for step in range(epoch * steps + 1, (epoch + 1) * steps + 1)
        for question in questions_of_step(questions(total), seed=seed, step=step, size=size)
    ]
    assert len(drawn) == len(set(drawn)) == steps * size


def test_a_step_depends_on_seed_and_step_alone():
    def draw(seed, step):
        return questions_of_step(questions(20), seed=seed, step=step, size=5)

    assert draw(1, 7) == draw(1, 7)
    assert draw(1, 7) != draw(2, 7)
    assert [draw(1, step) for step in range(1, 5)] != [draw(1, step) for step in range(5, 9)]


def test_too_few_questions():
    with pytest.raises(ConfigError, match="only 3"):
        questions_of_step(questions(3), seed=0, step=1, size=4)
