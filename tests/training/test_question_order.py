import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.raising import raises

from evoseek.errors import ConfigError, RunError
from evoseek.training.question_order import (
    Passes,
    QuestionOrder,
    apportioned,
    chosen,
)
from evoseek.types import Question


def questions(n):
    return [Question(f"q{i}", f"question {i}", ("a",)) for i in range(n)]


@settings(deadline=None)
@given(total=st.integers(1, 30), size=st.integers(1, 8), seed=st.integers(0, 5))
def test_every_question_comes_once_before_any_comes_again_and_none_twice_in_a_step(total, size, seed):
    steps = asked_by(QuestionOrder(), questions(total), [min(size, total)] * 4 * total, seed=seed)
    assert all(len(step) == len(set(step)) == min(size, total) for step in steps)
    drawn = [name for step in steps for name in step]
    for first in range(0, len(drawn) - total + 1, total):
        assert len(set(drawn[first : first + total])) == total


def test_a_step_that_ends_a_round_begins_the_next_with_other_questions():
    """Five questions, four a step: step 2 has the one that step 1 left, and three of the four that step 1 had."""
    first, second = (set(step) for step in asked_by(QuestionOrder(), questions(5), [4, 4]))
    assert len(first & second) == 3
    assert first | second == {f"q{number}" for number in range(5)}


def test_a_pass_depends_on_the_seed_alone():
    one, again, other = (asked_by(QuestionOrder(), questions(20), [5] * 8, seed=seed) for seed in (1, 1, 2))
    assert one == again != other
    assert one[:4] != one[4:]


def test_too_few_questions():
    with raises("questions.too_few", match="only 3"):
        asked_by(QuestionOrder(), questions(3), [4])


def test_the_orders_stay_what_they_are():
    drawn = asked_by(QuestionOrder(), questions(7), [3] * 12)
    assert [[int(name[1:]) for name in step] for step in drawn] == [
        [6, 2, 1], [5, 0, 4], [3, 2, 0], [4, 3, 5], [1, 6, 2], [6, 1, 0],
        [3, 4, 5], [2, 3, 0], [1, 4, 5], [6, 0, 3], [2, 1, 6], [4, 5, 2],
    ]  # fmt: skip


@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=30),
    total=st.integers(6, 20),
    used=st.integers(1, 6),
)
def test_what_a_step_did_not_ask_comes_first_in_the_next(sizes, total, used):
    """A step draws some questions and asks `used` of them, whatever the numbers are: it stays a pass."""
    passes, counts, ids = Passes(), Counter(f"q{n}" for n in range(total)), [f"q{n}" for n in range(total)]
    for step, size in enumerate(sizes, 1):
        drawn = [ids[place] for place in passes.draw(ids, seed=0, step=step, size=size)]
        passes.count(step, drawn[:used])
        counts.update(drawn[:used])
        assert max(counts.values()) - min(counts.values()) <= 1


def test_rollouts_ahead_of_training_ask_other_questions_and_a_resumed_run_draws_them_again():
    """Steps 1 to 3 are drawn before step 1 is counted; then 2 and 3 begin again from the checkpoint after step 1."""
    passes, ids = Passes(), [f"q{n}" for n in range(6)]
    first, second, third = (passes.draw(ids, seed=0, step=step, size=2) for step in (1, 2, 3))
    assert sorted([*first, *second, *third]) == list(range(6))
    passes.count(1, {ids[place] for place in first})
    resumed = Passes()
    resumed.restore(json.loads(json.dumps(passes.state())))
    assert [resumed.draw(ids, seed=0, step=step, size=2) for step in (2, 3)] == [second, third]
    assert [passes.draw(ids, seed=0, step=step, size=2) for step in (2, 3)] == [second, third]  # again, without a kill


def test_the_order_of_a_file_is_no_part_of_a_pass_and_reservations_end_with_a_restore():
    passes, ids = Passes(), ["q0", "q1", "q2"]
    (first,) = passes.draw(ids, seed=0, step=1, size=1)
    passes.count(1, ids)
    (second,) = passes.draw(ids[::-1], seed=0, step=2, size=1)
    assert ids[::-1][second] != ids[first]
    passes.count(2, ids)
    before = passes.state()
    drawn = passes.draw(ids, seed=0, step=3, size=2)
    passes.restore(before)
    assert passes.draw(ids, seed=0, step=4, size=2) == drawn


def test_the_state_of_another_version_is_refused():
    with pytest.raises(RunError, match="another version of evoseek"):
        Passes().restore({"rates": {"q0": [1.0, 2]}, "passes": {}})


def asked_by(order, asked, sizes, *, seed=0):
    """The ids that each step asks."""
    passes, steps = Passes(), []
    for step, size in enumerate(sizes, 1):
        steps.append([question.id for question in order(asked, seed=seed, step=step, size=size, passes=passes)])
        passes.count(step, steps[-1])
    return steps


def with_hops(*hops):
    return [Question(f"q{i}", "?", ("a",), {"hops": value}) for i, value in enumerate(hops)]


def test_questions_can_be_chosen_by_whether_they_are_answerable_though_few_say_it():
    asked = [*questions(2), Question("u", "question u", (), {"answerable": False})]
    assert [question.id for question in chosen(asked, {"answerable": False})] == ["u"]
    assert [question.id for question in chosen(asked, {"answerable": True})] == ["q0", "q1"]


def test_a_balanced_step_has_fixed_shares_and_its_beginning_too():
    order = QuestionOrder("hops", {"1": 1, "2": 2})
    asked = with_hops(*[1] * 5, *[2] * 7, *[3] * 4)
    hops = {question.id: question.metadata["hops"] for question in asked}
    steps = asked_by(order, asked, [6] * 7)
    assert all([hops[name] for name in step] == [2, 1, 2, 2, 1, 2] for step in steps)  # 1/8, 1/4, 3/8, 5/8, 3/4, 7/8
    of_two = [name for step in steps for name in step if hops[name] == 2]
    assert len(set(of_two[:7])) == 7  # each once before any comes again
    assert order.most(asked) == 11  # 4 and 7
    assert QuestionOrder().most(asked) == 16


def test_two_values_with_as_many_questions_are_not_paired_for_ever():
    """Eight of each value, one of each a step: in one round the k-th of one came with the k-th of the other, always."""
    asked = with_hops(*[1, 2] * 8)
    steps = asked_by(QuestionOrder("hops"), asked, [2] * 80)
    pairs = {tuple(sorted(step)) for step in steps}
    assert len(pairs) > 30  # of 64; 8 where they are paired


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
        QuestionOrder("hops", shares)(asked, seed=0, step=1, size=size, passes=Passes())


def test_questions_are_chosen_by_their_metadata():
    asked = [Question(f"q{i}", "?", ("a",), data) for i, data in enumerate(({"hops": 1, "kind": "x"}, {"hops": 2}, {}))]
    assert [q.id for q in chosen(asked, {})] == ["q0", "q1", "q2"]
    assert [q.id for q in chosen(asked, {"hops": (1, 2)})] == ["q0", "q1"]
    assert [q.id for q in chosen(asked, {"hops": "1", "kind": "x"})] == ["q0"]
    with raises("questions.none_chosen", match=r"none of the 3 questions.*hops: 1, 2; sort: in none of them. Correct"):
        chosen(asked, {"hops": 3, "sort": "x"})


def test_shares_are_rounded_by_the_largest_remainder():
    assert apportioned({"1": 1, "2": 2}, 4) == {"1": 1, "2": 3}
    assert apportioned({"1": 1, "2": 2}, 1) == {"1": 0, "2": 1}


def test_the_order_of_shares_in_a_file_makes_no_difference():
    asked = with_hops(1, 1, 2, 2)
    one, other = (QuestionOrder("hops", dict(shares)) for shares in ([("1", 1), ("2", 1)], [("2", 1), ("1", 1)]))
    drawn = [order(asked, seed=0, step=1, size=3, passes=Passes()) for order in (one, other)]
    assert drawn[0] == drawn[1]
