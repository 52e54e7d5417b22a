from hypothesis import given
from hypothesis import strategies as st

from evoseek.selfplay.question_log import draw_again
from evoseek.types import Question


def question(name: str) -> Question:
    return Question(name, "who ?", ("Meri", "M."))


ABC = [question(name) for name in "abc"]


@given(st.integers(0, 8), st.integers(0, 30), st.text())
def test_no_question_is_drawn_more_often_than_it_must(size: int, count: int, seed: str) -> None:
    drawn = draw_again((question(str(number)) for number in range(size)), count, seed)
    assert len(drawn) == (count if size else 0)
    times = [[q.id for q in drawn].count(str(number)) for number in range(size)]
    assert not size or max(times) - min(times) <= 1


@given(st.permutations(ABC), st.text())
def test_the_draw_follows_from_the_questions_and_the_seed_alone(order: list[Question], seed: str) -> None:
    assert draw_again(order, 5, seed) == draw_again(ABC, 5, seed)


def test_other_seeds_draw_otherwise() -> None:
    questions = [question(str(number)) for number in range(50)]
    draws = [[q.id for q in draw_again(questions, 10, f"0/replay/{step}")] for step in range(3)]
    assert len({tuple(draw) for draw in draws}) == 3
