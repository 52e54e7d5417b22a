"""What sentences of the generated world's grammar state, however they were taken apart."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evoseek.tiny.tokenizer import tiny_tokenizer
from evoseek.world.grammar import PHRASINGS
from evoseek.world.statements import asked_fact, sentences, states

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
@given(NAMES, RELATIONS, NAMES, st.sampled_from(PHRASINGS))
def test_the_tiny_tokenizer_changes_nothing(subject, relation, name, phrasing):
    sentence = phrasing.sentence(subject, relation, name)
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
