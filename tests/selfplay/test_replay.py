from hypothesis import given
from hypothesis import strategies as st

from evoseek.selfplay.replay import ReplayBuffer
from evoseek.types import Question


def question(name: str, text: str = "who ?") -> Question:
    return Question(name, text, ("Meri", "M."))


ABC = [question(name) for name in "abc"]


def test_questions_are_kept_by_id_and_the_later_one_counts() -> None:
    buffer = ReplayBuffer(ABC)
    buffer.add([question("b", "when ?"), question("d")])
    assert {q.id: q.text for q in buffer.draw(4, "x")} == {"a": "who ?", "b": "when ?", "c": "who ?", "d": "who ?"}


@given(st.integers(0, 8), st.integers(0, 30), st.text())
def test_no_question_is_drawn_more_often_than_it_must(size: int, count: int, seed: str) -> None:
    drawn = ReplayBuffer(question(str(number)) for number in range(size)).draw(count, seed)
    assert len(drawn) == (count if size else 0)
    times = [[q.id for q in drawn].count(str(number)) for number in range(size)]
    assert not size or max(times) - min(times) <= 1


@given(st.permutations(ABC), st.text())
def test_the_draw_follows_from_the_questions_and_the_seed_alone(order: list[Question], seed: str) -> None:
    assert ReplayBuffer(order).draw(5, seed) == ReplayBuffer(ABC).draw(5, seed)


def test_other_seeds_draw_otherwise() -> None:
    buffer = ReplayBuffer(question(str(number)) for number in range(50))
    draws = [[q.id for q in buffer.draw(10, f"0/replay/{step}")] for step in range(3)]
    assert len({tuple(draw) for draw in draws}) == 3
