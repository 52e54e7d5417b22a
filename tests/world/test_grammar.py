"""The world's grammar: every question text that it writes, it reads back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.world.grammar import (
    QUESTION_PHRASINGS,
    ParsedQuestion,
    chain_text,
    comparison_text,
    intersection_text,
    parse,
)
from evoseek.world.world import RELATIONS

names = st.lists(st.sampled_from(["Kalo", "Meri", "Sutobe", "Da"]), min_size=1, max_size=3).map(" ".join)
relations = st.lists(st.sampled_from(RELATIONS), min_size=1, max_size=5)


@given(names, relations, st.integers(0, QUESTION_PHRASINGS - 1))
def test_chain_questions_are_read_back(name: str, chain: list[str], phrasing: int) -> None:
    assert parse(chain_text(name, chain, phrasing)) == ParsedQuestion("chain", (name.casefold(),), tuple(chain))


@given(names, names)
def test_comparison_and_intersection_questions_are_read_back(one: str, other: str) -> None:
    assert parse(comparison_text("later", one, other)) == ParsedQuestion(
        "comparison", (one.casefold(), other.casefold()), ("later",)
    )
    assert parse(intersection_text("film", "star", one, "director", other)) == ParsedQuestion(
        "intersection", (one.casefold(), other.casefold()), ("star", "director"), "film"
    )


@pytest.mark.parametrize(
    "text",
    [
        "what is kalo meri 's mayor 's spouse ?",
        "  What is   KALO Meri's mayor's spouse",
        "what is the spouse of the mayor of kalo meri ?",
        "name the spouse of kalo meri 's mayor .",
    ],
)
def test_spacing_and_letter_case_do_not_matter(text: str) -> None:
    assert parse(text) == ParsedQuestion("chain", ("kalo meri",), ("mayor", "spouse"))


@pytest.mark.parametrize("text", ["", "?", "Who is Kalo?", "What is Kalo?", "What is Kalo's", "name the of ."])
def test_other_texts_are_no_questions(text: str) -> None:
    assert parse(text) is None
