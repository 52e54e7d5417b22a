"""Mixing questions of several sources by ratio."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.curation.mixing import mix
from evoseek.errors import ConfigError
from evoseek.types import Question

PAPER = {"nq": 1.0, "triviaqa": 1.0, "hotpotqa": 3.0, "2wiki": 3.0}


def source(name, size):
    return [Question(str(n), f"{name} {n}?", ("yes",), {"hops": 2}) for n in range(size)]


def taken(questions):
    return Counter(question.metadata["source"] for question in questions)


SOURCES = {name: source(name, 50) for name in PAPER}


def test_the_papers_ratio():
    questions, missing = mix(SOURCES, PAPER, 80, seed=0)
    assert taken(questions) == {"nq": 10, "triviaqa": 10, "hotpotqa": 30, "2wiki": 30}
    assert set(missing.values()) == {0}
    assert [question.metadata["source"] for question in questions].count("2wiki") == 30
    assert {question.metadata["hops"] for question in questions} == {2}
    assert len({question.id for question in questions}) == 80  # each source has a question "0"
    assert questions[0].id.startswith(f"{questions[0].metadata['source']}/")


def test_the_largest_remainders_are_rounded_up():
    """11 in 1 : 1 : 3 : 3 is 1.375, 1.375, 4.125, 4.125: one is left over, and goes to the first of the largest."""
    assert taken(mix(SOURCES, PAPER, 11, seed=0)[0]) == {"nq": 2, "triviaqa": 1, "hotpotqa": 4, "2wiki": 4}
    two = {"a": source("a", 9), "b": source("b", 9)}
    assert taken(mix(two, {"a": 1, "b": 3}, 5, seed=0)[0]) == {"a": 1, "b": 4}  # 1.25 and 3.75


def test_what_a_source_cannot_give_is_said_and_nothing_takes_its_place():
    questions, missing = mix({"small": source("s", 5), "large": source("l", 50)}, {"small": 1, "large": 1}, 20, seed=0)
    assert (taken(questions), missing) == ({"small": 5, "large": 10}, {"small": 5, "large": 0})
    assert len(questions) == 15


def test_no_text_is_drawn_twice_whatever_its_case_and_spaces():
    twice = [Question("a", "Who  wrote Dune?", ("x",)), Question("b", "who wrote dune? ", ("x",))]
    questions, missing = mix({"one": twice, "two": twice}, {"one": 1, "two": 1}, 2, seed=0)
    assert (taken(questions), missing) == ({"one": 1}, {"one": 0, "two": 1})


def test_it_follows_from_the_seed_and_is_in_a_drawn_order():
    (first, _), (other, _) = mix(SOURCES, PAPER, 80, seed=0), mix(SOURCES, PAPER, 80, seed=1)
    assert first == mix(SOURCES, PAPER, 80, seed=0)[0]
    assert {question.id for question in first} != {question.id for question in other}
    assert len({question.metadata["source"] for question in first[:10]}) > 1


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=6), st.integers(1, 300))
def test_every_share_is_within_one_of_the_exact_one(shares, count):
    ratio = {str(n): share for n, share in enumerate(shares)}
    questions, _ = mix({name: source(name, 300) for name in ratio}, ratio, count, seed=0)
    assert len(questions) == count
    for name, share in ratio.items():
        assert abs(taken(questions)[name] - count * share / sum(shares)) < 1


@pytest.mark.parametrize("unit", [1e-308, 1e308])
def test_shares_may_be_of_any_size(unit):
    ratio = dict.fromkeys(PAPER, unit)
    assert set(taken(mix(SOURCES, ratio, 8, seed=0)[0]).values()) == {8 // len(ratio)}


@pytest.mark.parametrize(
    ("ratio", "count"),
    [(PAPER, 0), ({"nq": 1}, 5), ({**PAPER, "nq": 0}, 5), ({**PAPER, "nq": float("nan")}, 5), ({}, 5)],
)
def test_what_cannot_be_mixed_is_refused(ratio, count):
    with pytest.raises(ConfigError, match="a share above 0"):
        mix(SOURCES, ratio, count, seed=0)
