"""Questions that compare."""

import random
import re

from evoseek.documents.passages import split_document
from evoseek.questions.writers.chains import comparisons
from evoseek.questions.writers.clozes import clozes
from evoseek.types import Document


def found(*pages: tuple[str, str], seed: int = 0) -> list[tuple[str, str]]:
    by_document = {
        title: list(clozes(split_document(Document(title, title, text), max_words=40))) for title, text in pages
    }
    return [(made.question, made.answer) for made in comparisons(by_document, random.Random(seed))]


BIRK = ("Ada Birk", "Ada Birk (16 June 1911 - 3 May 1980) was an actress. She lived in the north.")
VALE = ("Oto Vale (actor)", "Oto Vale (2 May 1920 - 4 June 1970) was an actor. He lived in the south.")
KITE, GULL = (
    ("The Kite", "The Kite is a 1947 film of the north."),
    ("Gull?", "Gull? is a 1938 crime film of the south."),
)
ORO, BRILL = ("Oro", "Oro was founded on 3 May 1907."), ("Brill", "Brill was founded on 3 May 1807.")


def test_the_earlier_of_two_dates_is_the_answer_in_either_order():
    made = {order: dict(found(BIRK, VALE, seed=order)) for order in range(8)}
    orders = [
        {"Who was born first, Ada Birk or Oto Vale?": "Ada Birk", "Who died first, Ada Birk or Oto Vale?": "Oto Vale"},
        {"Who was born first, Oto Vale or Ada Birk?": "Ada Birk", "Who died first, Oto Vale or Ada Birk?": "Oto Vale"},
    ]
    asked = {question: answer for own in made.values() for question, answer in own.items()}
    assert asked == orders[0] | orders[1]


def test_what_things_are_compared_in():
    questions = {re.sub(r", .*", "", question): answer for question, answer in found(KITE, GULL, ORO, BRILL)}
    assert questions == {"Which film was released first": "Gull?", "Which was founded first": "Brill"}
    assert all(question.count("?") == 1 or "Gull? or" in question for question, _ in found(KITE, GULL, seed=1))


def test_the_same_year_another_question_and_a_single_document_are_not_compared():
    later = ("Vesu", "Vesu was founded on 9 June 1907.")
    rebuilt = ("Kalo", "Kalo was rebuilt on 9 June 1807.")
    assert found(ORO, later) == found(ORO, rebuilt) == found(ORO) == found(BIRK, KITE) == []


def test_a_document_is_in_one_pair_at_most_for_each_question():
    towns = ("Tor", "Vesu", "Marland", "Oro", "Brill", "Kalo", "Adra")
    made = found(*((f"Port {town}", f"Port {town} was founded on 3 May 1{n}07.") for n, town in enumerate(towns)))
    named = [name for question, _ in made for name in re.findall(r"Port \w+", question)]
    assert len(made) == 3
    assert len(named) == len(set(named))
