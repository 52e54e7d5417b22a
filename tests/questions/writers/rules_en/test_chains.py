"""Questions of two hops."""

import pytest

from evoseek.documents.passages import split_document
from evoseek.questions.writers.rules_en.chains import chained, chains, description
from evoseek.questions.writers.rules_en.clozes import Cloze, clozes
from evoseek.types import Document

PAGES = {
    "kite": ("The Kite", "The Kite is a 1947 crime film directed by Ada Birk."),
    "gull": ("The Gull", "The Gull is a play written by Ada Birk."),
    "vale": ("Oro Vale", "Oro Vale is a valley in Marland."),
    "birk": ("Ada Birk (actress)", "Ada Birk (born 16 June 1911) was an actress. She was born in Oro Vale."),
    "set": ("Tree.set", "set is a method of the class Tree."),
    "tree": ("Tree", "Tree is a class of the module tk.tree."),
}


def found(pages: dict[str, tuple[str, str]] = PAGES) -> list[tuple[str, str, str]]:
    documents = [Document(id, title, text) for id, (title, text) in pages.items()]
    made = [list(clozes(split_document(document, max_words=40))) for document in documents]
    return [(chain.question, chain.first.answer, chain.second.answer) for chain in chains(made)]


def test_an_answer_that_another_page_is_about_leads_there():
    assert set(found()) == {
        ("When was the director of the film The Kite born?", "Ada Birk", "16 June 1911"),
        ("When was the writer of the play The Gull born?", "Ada Birk", "16 June 1911"),
        ("The place that Ada Birk was born in is a valley where?", "Oro Vale", "Marland"),
        ("Which module has the class with the method set?", "Tree", "tk.tree"),
    }


def test_a_name_that_two_pages_have_leads_nowhere():
    twice = {**PAGES, "other": ("Ada Birk", "Ada Birk was a painter from Brill.")}
    assert all(bridge != "Ada Birk" for _, bridge, _ in found(twice))


def test_a_possessive_is_put_in_front_of_another():
    pages = {
        "moro": ("Moro", "Moro's first director is Neve Fuji."),
        "fuji": ("Neve Fuji", "Neve Fuji's employer is Pohave."),
    }
    assert found(pages) == [("What is Moro's first director's employer?", "Neve Fuji", "Pohave")]


def test_a_part_is_described_by_its_name_also_after_a_colon():
    pages = {"set": ("Tree.set", "set: a method of the class Tree."), "tree": PAGES["tree"]}
    assert found(pages) == [("Which module has the class with the method set?", "Tree", "tk.tree")]


@pytest.mark.parametrize(
    ("said", "described"),
    [
        (" is a crime film written and directed by", "the director of the film The Kite"),
        (" was directed by", "the director of The Kite"),
        (" is 1947 crime film directed by", "the director of the film The Kite"),
        (" was written and directed by", "the director of The Kite"),
        (" was opened by", "the one who opened The Kite"),  # there is no noun for it
        (" was named after Ada and directed by", None),
        (" was married to the actor", "the actor that The Kite was married to"),
        (" was married to actor", None),
        (" was to be completed by", "the one that The Kite was to be completed by"),
        ("'s score was composed by", None),
        (" is a film from 1947 directed by", None),  # "the one that The Kite is a film from 1947 directed by"
        (" was an employee of", None),
    ],
)
def test_only_who_did_the_subject_itself_is_described_by_it(said: str, described: str | None):
    cloze = Cloze("?", "Ada Birk", "name", "The Kite", f"The Kite{said} ", "", "The Kite", ())
    assert description(cloze) == described


def test_what_is_said_of_a_film_is_not_asked_of_the_person_of_its_name():
    film = ("Beata", "Beata is a 1987 crime film directed by Ada Birk.")
    person = ("Beata", "Beata was born in 1987 near the sea.")
    asked = [
        found({"ola": ("Ola Brim", f"Ola Brim was {said} Beata."), "beata": beata})
        for said in ("the niece of", "taught by")
        for beata in (film, person)
    ]
    assert asked == [
        [],
        [("When was the one that Ola Brim was the niece of born near the sea?", "Beata", "1987")],
        [],
        [("When was the one who taught Ola Brim born near the sea?", "Beata", "1987")],
    ]


def test_the_word_for_what_something_is_goes_with_its_name():
    gull = ("The Gull", "The Gull was inspired by Beata.")
    beata = ("Beata", "Beata is a 1987 crime film.")
    assert found({"gull": gull, "beata": beata}) == []  # not "When was the film the one who ..."


def test_no_chain_names_its_bridge():
    assert all(bridge.lower() not in question.lower() for question, bridge, _ in found())


def test_the_second_questions_of_chains_take_turns():
    """The director was born, died and was Danish; what else is said of her is asked only where that is not known."""
    pages = {
        "birk": (
            "Ada Birk",
            "Ada Birk (16 June 1911 - 3 May 1980) was a Danish actress. She lived in Brill.",
        ),
        "vale": ("Oto Vale", "Oto Vale was an actor in the north of Marland. He sang."),
        **{f"kite{n}": (f"Kite {n}", f"Kite {n} is a crime film directed by Ada Birk.") for n in range(4)},
        "gull": ("The Gull", "The Gull is a play written by Oto Vale."),
    }
    assert [(question, answer) for question, _, answer in found(pages)] == [
        ("When was the director of the film Kite 0 born?", "16 June 1911"),
        ("When did the director of the film Kite 1 die?", "3 May 1980"),
        ("What is the nationality of the director of the film Kite 2?", "Danish"),
        ("When was the director of the film Kite 3 born?", "16 June 1911"),
        ("The writer of the play The Gull was an actor in the north of what?", "Marland"),
    ]


def test_two_documents_are_linked_once():
    pages = {
        "kite": ("The Kite", "The Kite was directed by Ada Birk. The Kite was written by Ada Birk."),
        "birk": ("Ada Birk", "Ada Birk was born on 16 June 1911 in the north."),
    }
    assert [bridge for _, bridge, _ in found(pages)] == ["Ada Birk"]


def cloze(question: str, answer: str, about: str, before: str = "", after: str = "") -> Cloze:
    return Cloze(question, answer, "name", about, before, after, about, (), of_person=True)


@pytest.mark.parametrize(
    ("question", "answer", "is_chain"),
    [
        ("When was Ada Birk born?", "16 June 1911", True),
        ("When did Ada Birk meet the sister of Ada Birk?", "1930", False),  # names the bridge
        ("What did Ada Birk call the boat?", "Ada", False),  # is the bridge's
        ("When was Ada Birk seen in Oro?", "Oro", False),  # is in the question
        (f"When was Ada Birk seen {'so ' * 40}often?", "1930", False),  # long
    ],
)
def test_a_chain_says_neither_its_bridge_nor_its_answer(question: str, answer: str, is_chain: bool):
    first = cloze("Who directed The Kite?", "Ada Birk", "The Kite", "The Kite is a film directed by ")
    assert (chained(first, cloze(question, answer, "Ada Birk")) is not None) is is_chain


def test_a_description_has_the_end_of_its_statement_and_is_short():
    married = "Ada Birk was married to "
    assert description(cloze("?", "Lew Oman", "Ada Birk", married, " in 1930")) == (
        "the one that Ada Birk was married to in 1930"
    )
    assert description(cloze("?", "Lew Oman", "Ada Birk", f"Ada Birk was {'very ' * 12}married to ")) is None
