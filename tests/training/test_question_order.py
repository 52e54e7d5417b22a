import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evoseek.errors import ConfigError
from evoseek.training.pass_rates import PassRates
from evoseek.training.question_order import (
    BalancedOrder,
    DifficultyOrder,
    UniformOrder,
    apportioned,
    chosen,
    most_of,
    ordered,
    questions_of_step,
)
from evoseek.training.settings import QuestionSettings
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


def rated(**counts):
    rates = PassRates()
    rates.restore({key: list(count) for key, count in counts.items()})
    return rates


def test_the_weight_is_the_expected_learnability_by_hand():
    """Of the uniform distribution: integral of p (1 - p) = 1/6. With 4 of 8 right: Beta(5, 5), 5 * 5 / (10 * 11)."""
    weight = DifficultyOrder().weight
    assert weight(0, 0) == pytest.approx(1 / 6)
    assert weight(4, 8) == pytest.approx(25 / 110)
    assert weight(0, 8) == weight(8, 8) == pytest.approx(9 / 110)
    assert 0 < weight(0, 10**6) < 2e-6
    with_prior = DifficultyOrder(DifficultyOrder.Settings(name="difficulty", prior=2.0)).weight
    assert with_prior(0, 0) == pytest.approx(2 * 2 / (4 * 5))
    assert with_prior(0.5, 1) == pytest.approx(2.5 * 2.5 / (5 * 6))


def test_the_first_question_of_a_step_is_drawn_in_proportion_to_its_weight():
    """Weights 9/110, 9/110 and 25/110: shares 9/43, 9/43, 25/43, within 4 standard errors of 2000 steps."""
    rates, order = rated(q0=(0, 8), q1=(8, 8), q2=(4, 8)), DifficultyOrder()
    firsts = [order(questions(3), seed=1, step=step, size=1, rates=rates)[0].id for step in range(1, 2001)]
    for name, share in (("q0", 9 / 43), ("q1", 9 / 43), ("q2", 25 / 43)):
        assert abs(firsts.count(name) / 2000 - share) < 4 * (share * (1 - share) / 2000) ** 0.5


def test_by_difficulty_a_step_is_a_function_of_seed_step_and_rates():
    order, rates = DifficultyOrder(), rated(q0=(0, 80), q3=(3, 8))

    def drawn(seed=0, step=1, rates=rates):
        return [question.id for question in order(questions(20), seed=seed, step=step, size=8, rates=rates)]

    assert drawn() == drawn(rates=rated(q3=(3, 8), q0=(0, 80)))
    assert len(set(drawn())) == 8
    assert len({tuple(drawn()), tuple(drawn(seed=1)), tuple(drawn(step=2)), tuple(drawn(rates=rated()))}) == 4
    with pytest.raises(ConfigError, match="draws 8 different questions, but there are only 7"):
        order(questions(7), seed=0, step=1, size=8, rates=rates)


def with_hops(*hops):
    return [Question(f"q{i}", "?", ("a",), {"hops": value}) for i, value in enumerate(hops)]


def hops_of(drawn):
    return [question.metadata["hops"] for question in drawn]


def test_a_balanced_step_has_fixed_shares_and_its_beginning_too():
    order = BalancedOrder(UniformOrder(), "hops", {"1": 1, "2": 2})
    asked = with_hops(*[1] * 5, *[2] * 7, *[3] * 4)
    steps = [order(asked, seed=0, step=step, size=6, rates=PassRates()) for step in range(1, 8)]
    assert all(hops_of(step) == [2, 1, 2, 2, 1, 2] for step in steps)  # places 1/8, 1/4, 3/8, 5/8, 3/4, 7/8
    of_two = [question.id for step in steps for question in step if question.metadata["hops"] == 2]
    assert len(set(of_two[:7])) == 7  # each once before any comes again
    assert order.most(asked) == most_of(order, asked) == 11  # 4 and 7
    assert most_of(UniformOrder(), asked) == 16


def test_without_shares_all_values_have_the_same_and_any_order_chooses_among_them():
    rates = rated(q0=(0, 10**6), q1=(4, 8), q2=(0, 10**6), q3=(4, 8))
    settings = QuestionSettings(balance_by="hops")
    order = ordered(settings, DifficultyOrder())
    assert {q.id for q in order(with_hops(1, 1, 2, 2), seed=0, step=1, size=2, rates=rates)} == {"q1", "q3"}
    assert ordered(QuestionSettings(), UniformOrder()).__class__ is UniformOrder


@pytest.mark.parametrize(
    ("asked", "shares", "size", "words"),
    [
        (with_hops(1, 1, 2), {"1": 1, "2": 1}, 4, r"draws 2 questions with hops = 2 \(questions.shares\), .* only 1"),
        (with_hops(1, 1), {"1": 1, "4": 1}, 2, "draws 1 questions with hops = 4 .* only 0"),
        (questions(3), {}, 2, "the question q0 has no hops in its metadata"),
    ],
)
def test_what_cannot_be_balanced_is_told(asked, shares, size, words):
    with pytest.raises(ConfigError, match=words):
        BalancedOrder(UniformOrder(), "hops", shares)(asked, seed=0, step=1, size=size, rates=PassRates())


def test_questions_are_chosen_by_their_metadata():
    asked = [Question(f"q{i}", "?", ("a",), data) for i, data in enumerate(({"hops": 1, "kind": "x"}, {"hops": 2}, {}))]
    assert [q.id for q in chosen(asked, {})] == ["q0", "q1", "q2"]
    assert [q.id for q in chosen(asked, {"hops": (1, 2)})] == ["q0", "q1"]
    assert [q.id for q in chosen(asked, {"hops": "1", "kind": "x"})] == ["q0"]
    with pytest.raises(ConfigError, match=r"None of the 3 questions .*hops: 1, 2; sort: in none of them. Correct"):
        chosen(asked, {"hops": 3, "sort": "x"})


def test_shares_are_rounded_by_the_largest_remainder():
    assert apportioned({"1": 1, "2": 2}, 4) == {"1": 1, "2": 3}
    assert apportioned({"1": 1, "2": 2}, 1) == {"1": 0, "2": 1}


def test_the_order_of_shares_in_a_file_makes_no_difference():
    asked = with_hops(1, 1, 2, 2)
    one, other = (
        BalancedOrder(UniformOrder(), "hops", dict(shares)) for shares in ([("1", 1), ("2", 1)], [("2", 1), ("1", 1)])
    )
    drawn = [order(asked, seed=0, step=1, size=3, rates=PassRates()) for order in (one, other)]
    assert drawn[0] == drawn[1]
