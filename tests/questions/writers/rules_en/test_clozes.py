"""Questions from statements: the table of examples, and what no table shows."""

import re
import time
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.documents.passages import split_document
from evoseek.questions.writers.base import subject, words
from evoseek.questions.writers.rules_en import english
from evoseek.questions.writers.rules_en.clozes import Cloze, clozes
from evoseek.questions.writers.rules_en.fronting import fronted
from evoseek.types import Document, Passage

EXAMPLES: dict[str, list[tuple[str, str, str, str]]] = tomllib.loads(
    Path(__file__).with_name("examples.toml").read_text(encoding="utf-8")
)
OF_CHAINS = {"AGENTS", "WORK", "OPEN_PREDICATE"}  # their examples are in test_chains.py


def of(title: str, text: str, *, max_words: int = 40) -> list[Cloze]:
    return list(clozes(split_document(Document("d", title, text), max_words=max_words)))


def asked(title: str, text: str) -> dict[str, str]:
    return {cloze.question: cloze.answer for cloze in of(title, text)}


def holds(title: str, text: str, question: str, answer: str) -> bool:
    found = asked(title, text)
    if question:
        return found.get(question, "") == answer
    return not [one for one in found.values() if one != title] if answer == "*" else answer not in found.values()


@pytest.mark.parametrize(
    ("pattern", "title", "text", "question", "answer"),
    [pytest.param(name, *one, id=f"{name}-{one[1][:40]}") for name, examples in EXAMPLES.items() for one in examples],
)
def test_an_example_of_a_pattern(pattern: str, title: str, text: str, question: str, answer: str):
    """With a question its answer, "" if it is not asked; without one, what is no answer ("*": anything)."""
    assert holds(title, text, question, answer)


def test_each_pattern_has_an_example():
    assert EXAMPLES.keys() | OF_CHAINS == {name for name in vars(english) if name.isupper() and name[0] != "_"}


@pytest.mark.parametrize("name", [name for name in EXAMPLES if isinstance(getattr(english, name), re.Pattern)])
def test_without_a_pattern_one_of_its_examples_fails(name: str, monkeypatch: pytest.MonkeyPatch):
    pattern: re.Pattern[str] = getattr(english, name)
    monkeypatch.setattr(english, name, re.compile(f"(?!)(?:{pattern.pattern})", pattern.flags))
    assert not all(holds(*example) for example in EXAMPLES[name])


def test_the_rules_keep_to_their_budget():
    folder = Path(english.__file__).parent
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in folder.glob("*.py")) <= 900


@pytest.mark.parametrize(
    ("title", "text", "answer"),
    [
        ("Marlow", ">>> Marlow.run(Tom) 12 13 {} [] = == != +++", "Tom"),  # a program
        ("Marlow", "Marlow 1200 1300 4400 5100 8000 9000 was run by Tom.", "Tom"),  # a table
        ("Marlow", "The Oro Press of Marlow was bought by Oro.", "Oro"),  # what the question says
        ("Marlow", f"Marlow was bought by Tom {'at last ' * 15}in the end.", "Tom"),  # a long question
        ("Marlow", "Suppose that a car runs over 40 miles of a road.", "40"),  # names nothing
        ("Marlow", "Marlow charges its members 10 EUR a day.", "EUR"),  # a unit
        (
            "Nela Boss",
            "Nela Boss is a short film about the days of Oro and the life and death of Bo Lund.",
            "Nela Boss",
        ),
    ],
)
def test_what_is_no_statement_or_would_be_no_question_is_left_out(title: str, text: str, answer: str):
    assert answer not in asked(title, text).values()


def test_a_title_may_say_a_word_twice():
    assert asked("Bora Bora", "Bora Bora was annexed in Paris.") == {"Where was Bora Bora annexed?": "Paris"}


def test_what_is_used_by_a_person_is_none():
    found = asked("The Library", "The Library is old. It is used by Ada Birk in all her work.")
    assert found == {"The Library is used by who in all her work?": "Ada Birk"}


def test_about_how_many_is_asked_in_place():
    assert fronted("Marlow", "Marlow has about ", "how many", " inhabitants") is None


@given(st.text(alphabet="AbcdeTom. ,()12\n'-", max_size=300))
def test_whatever_the_text_no_question_holds_its_answer(text: str):
    for cloze in of("Marlow", f"Marlow is {text}"):
        assert not set(words(cloze.answer)) <= set(words(cloze.question))
        assert cloze.question.endswith("?")
        assert cloze.evidence


@pytest.mark.parametrize(
    ("title", "text"),
    [
        ("Ann Lee", f"Ann Lee (1 May 1900 {'-' * 100_000} was a poet. He was born in Brill."),
        ("Ann Lee", f"Ann Lee (1 May 1900 {'-' * 970}\n\n" * 60 + "He was a poet."),
        ("Ann Lee", f"Ann Lee is the name of {'aaaaaaaaa_' * 50_000}/ in Brill."),
        (f"Ann{' ' * 100_000}Lee", "Ann Lee is a poet from Brill."),
    ],
)
def test_a_long_run_of_one_character_takes_no_time(title: str, text: str):
    begin = time.process_time()
    list(clozes([Passage("d#0", "d", title, text, 0, len(text))]))
    assert time.process_time() - begin < 1


def test_a_statement_over_two_passages_has_both_as_evidence_and_the_answer_in_the_first_alone():
    text = "Marlow was opened by Tom Ark after the great flood of the river that runs below the old walls of the town."
    (cloze,) = [one for one in of("Marlow", text, max_words=12) if one.answer == "Tom Ark"]
    assert cloze.evidence == ("d#0",)
    assert cloze.question.startswith("Marlow was opened by who after the great flood")


def test_passages_without_places_are_read_one_after_the_other():
    texts = ("Marlow was founded by Ines Oduya.", "Marlow was sold by Tom Ark.")
    found = clozes([Passage(f"d#{number}", "d", "Marlow", text) for number, text in enumerate(texts)])
    assert [(one.answer, one.evidence) for one in found] == [("Ines Oduya", ("d#0",)), ("Tom Ark", ("d#1",))]


def test_a_heading_before_a_line_that_is_set_in_is_no_part_of_it():
    text = "Managing Sizes\n   The limit of all parts is kept by the Oro Reader."
    assert not [
        one for one in clozes([Passage("d#0", "d", "Parts", text, heading="Managing Sizes")]) if "Sizes" in one.question
    ]


def test_a_section_about_somebody_is_found_by_its_questions_since_the_page_is_about_something_else():
    text = "# Team\n\nThe team was founded in 2016.\n\n### Ada Birk\n\nAda studied in Brill. She was born in Vell."
    found = {cloze.question: cloze for cloze in of("Team", text)}
    assert (found["Where was Ada Birk born?"].answer, found["Where was Ada Birk born?"].query) == ("Vell", "")
    assert "Where was Team born?" not in found


def test_a_part_of_a_title_finds_its_page():
    found = {one.question: one.query for one in of("Tree.set", "set is a method of the class Tree.")}
    assert found["Which class has the method set?"] == "set"


def test_what_is_not_english_gives_nothing():
    german = "Das Kraftwerk Marlow ist ein Kraftwerk am Inn. Die Leistung beträgt 85 Megawatt und wurde 1950 erreicht."
    assert not of("Kraftwerk Marlow", german)
    assert of("Il sogno", "Il sogno di un giorno di festa is a 1951 film directed by Ada Birk.")


def test_a_long_document_is_read_to_its_end():
    text = " ".join(f"Book {'ABCDEFGH'[place % 8]}{place} was made by Ada Birk." for place in range(100))
    assert any("D99" in question for question in asked("Book", text))


def test_a_title_that_is_too_long_or_has_no_words_is_no_subject():
    text = "It was seen by Ada Birk. Oro Vale was founded by Tom Ark."
    for title in ("A title that is nothing but a sentence of ten words", "***"):
        assert {one.answer: one.query for one in of(title, text)} == {"Tom Ark": ""}


@pytest.mark.parametrize(
    ("title", "about"),
    [
        ("Oslo — A History", "Oslo — A History"),
        ("1984 Summer Olympics — Wikipedia", "1984 Summer Olympics"),
        ("5.3. Fields | Oro", "Fields"),
        ("5. Fields — Oro Manual v2", "Fields"),
        ("Ada Birk (actress (2))", "Ada Birk"),
    ],
)
def test_a_page_is_about_its_title_without_its_number_its_site_and_brackets(title: str, about: str):
    assert subject(title) == about


def test_brackets_may_hold_brackets():
    assert asked("Marlow", "Marlow was led by Ada Birk (see Oro (5)) at once.") == {
        "Marlow was led by who at once?": "Ada Birk"
    }
