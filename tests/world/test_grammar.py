"""The world's grammar: every question text that it writes, it reads back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tools.tiny.tokenizer import tiny_tokenizer

from evoseek.world.grammar import (
    PHRASINGS,
    QUESTION_PHRASINGS,
    ParsedQuestion,
    asked_fact,
    chain_text,
    fact_text,
    parse,
    sentences,
    states,
)
from evoseek.world.world import RELATIONS

names = st.lists(st.sampled_from(["Kalo", "Meri", "Sutobe", "Da"]), min_size=1, max_size=3).map(" ".join)
relations = st.lists(st.sampled_from(RELATIONS), min_size=1, max_size=5)


@given(names, relations, st.integers(0, QUESTION_PHRASINGS - 1))
def test_chain_questions_are_read_back(name: str, chain: list[str], phrasing: int) -> None:
    assert parse(chain_text(name, chain, phrasing)) == ParsedQuestion(name.casefold(), tuple(chain))


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
    assert parse(text) == ParsedQuestion("kalo meri", ("mayor", "spouse"))


@pytest.mark.parametrize("text", ["", "?", "Who is Kalo?", "What is Kalo?", "What is Kalo's", "name the of ."])
def test_other_texts_are_no_questions(text: str) -> None:
    assert parse(text) is None


TOKENIZER = tiny_tokenizer()
NAMES = st.lists(st.sampled_from(["Koto", "Feno", "Balo", "Zina", "Tidira"]), min_size=1, max_size=2).map(" ".join)
RELATIONS = st.sampled_from(["employer", "spouse", "year"])


@pytest.mark.parametrize(
    "text",
    [
        "Koto Feno's employer is Balo.",
        "koto feno ' s employer is balo .",
        "Koto Feno's spouse is Zina. KOTO  FENO's\nemployer is Balo",
        "The employer of Koto Feno is Balo.",
        "Balo is the employer of Koto Feno.",
    ],
)
def test_a_sentence_states_its_fact(text):
    assert states(["Something else.", text], "Koto Feno", "employer", ["Zina", "Balo"])
    assert states([text], "koto feno", "employer")


@pytest.mark.parametrize(
    "text",
    [
        "Koto Feno's employer is Balo Zina.",
        "Koto Feno's employer is",
        "Koto Feno's employer",
        "Zina Koto Feno's employer is Balo.",
        "Feno's employer is Balo.",
        "Koto Feno's spouse is Balo.",
        "Koto Feno's employer is not known, Balo.",
    ],
)
def test_less_than_the_sentence_does_not(text):
    assert not states([text], "Koto Feno", "employer", ["Balo"])


def test_whatever_object_is_still_one_name():
    assert states(["Koto Feno's employer is Balo Zina."], "Koto Feno", "employer")
    assert not states(["Koto Feno's employer is, they say, Balo."], "Koto Feno", "employer")
    assert not states(["Koto Feno's employer is Balo, they say."], "Koto Feno", "employer")
    assert not states(["Koto Feno's employer is."], "Koto Feno", "employer")
    assert not states([], "Koto Feno", "employer")


@settings(max_examples=40)
@given(NAMES, RELATIONS, NAMES, st.integers(0, len(PHRASINGS) - 1))
def test_the_tiny_tokenizer_changes_nothing(subject, relation, name, phrasing):
    sentence = fact_text(subject, relation, name, phrasing)
    decoded = TOKENIZER.decode(TOKENIZER.encode(sentence))
    assert sentences([decoded]) == sentences([sentence])
    assert states([decoded], subject, relation, [name])


def test_queries_for_one_fact():
    assert asked_fact("Koto Feno's employer") == ("koto feno", "employer")
    assert asked_fact("koto feno ' s employer") == ("koto feno", "employer")
    assert asked_fact("What is the employer of Koto Feno?") == ("koto feno", "employer")
    assert asked_fact("Koto Feno's employer's founder") is None
    assert asked_fact("Koto Feno") is None
    assert asked_fact("") is None
