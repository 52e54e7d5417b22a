"""Questions from tables and abbreviations."""

from dataclasses import replace

import pytest

from evoseek.documents.passages import split_document
from evoseek.questions.writers.chains import chains
from evoseek.questions.writers.tables import tabled
from evoseek.types import Document

DEPOTS = """| Depot | Address | Opened | Vehicles |
|---|:--|---|---|
| Brill | 3 Kiln Lane, Brill | 1932 | 31 |
| **Vell** | 9 Port Road | 1958 | 19 |
| Oro | - | May 2001 | 7 |
"""


def asked(text: str, title: str = "Our sites", *, max_words: int = 100) -> dict[str, str]:
    passages = split_document(Document("d", title, f"This is a page of the company.\n\n{text}"), max_words=max_words)
    return {cloze.question: cloze.answer for cloze in tabled(passages)}


def table(*rows: str) -> str:
    first, *rest = rows
    return "\n".join([f"| {first} |", "|---" * (first.count("|") + 1) + "|", *(f"| {row} |" for row in rest)])


def test_each_cell_is_asked_for_by_its_row_and_its_column():
    assert asked(DEPOTS) == {
        "What is the address of the depot Brill?": "3 Kiln Lane, Brill",
        "When was the depot Brill opened?": "1932",
        "How many vehicles does the depot Brill have?": "31",
        "What is the address of the depot Vell?": "9 Port Road",
        "When was the depot Vell opened?": "1958",
        "How many vehicles does the depot Vell have?": "19",
        "When was the depot Oro opened?": "May 2001",
        "How many vehicles does the depot Oro have?": "7",
    }


def test_an_escaped_sign_is_no_border_of_cells():
    rows = table("Depot | Code", r"Brill | A\|B", "Vell | C")
    assert "A|B" in asked(rows).values()


def test_a_row_of_a_table_that_is_cut_is_asked_about_below_the_headings_of_its_columns():
    rows = table("Depot | Vehicles", *(f"Brill {letter} | {n}" for n, letter in enumerate("ABCDEFGH", 11)))
    assert len(asked(rows)) == 8
    assert asked(rows, max_words=20) == asked(rows)


@pytest.mark.parametrize(
    ("rows", "question", "answer"),
    [
        (("Name | Role", "Ada Birk | Head of team"), "What is the role of Ada Birk?", "Head of team"),
        (("Name | Joined", "Ada Birk | 2016"), "When did Ada Birk join?", "2016"),
        (("Station | Supervisor", "Brill | Ada Birk"), "Who is the supervisor of the station Brill?", "Ada Birk"),
        (("What | Path", "Log file | /var/log"), "What is the path of the log file?", "/var/log"),
        (("Setting | Default", "max_size | 900"), "What is the default of the setting max_size?", "900"),
        (("Area | Hardness (dH)", "Vell | 17"), "What is the hardness in dH of the area Vell?", "17"),
        (("Area | Address (post)", "Vell | Port"), "What is the address of the area Vell?", "Port"),
        (("Item | Shelf", "Cotton wool | A3"), "What is the shelf of the cotton wool?", "A3"),
        (("Firm | Claims per year", "Vell | 188"), "How many claims per year does the firm Vell have?", "188"),
        (("Site | Next review", "Vell | May 2026"), "When is the next review of the site Vell?", "May 2026"),
        (("Firm | Founding", "Vell | 3 May 1926"), "When was the founding of the firm Vell?", "3 May 1926"),
        (("Drug | Expires", "Vell | May 2026"), "When does the drug Vell expire?", "May 2026"),
        (("Ward | Price", "Ward A | €9"), "What is the price of Ward A?", "€9"),
        (("Item | Value", "Daily capacity | 22,000 l"), "What is the daily capacity of Our sites?", "22,000 l"),
        ((" | Oro 300 | Vell 2", "Weight | 1 kg | 2 kg"), "What is the weight of Vell 2?", "2 kg"),
    ],
)
def test_what_is_asked_depends_on_the_headings(rows: tuple[str, ...], question: str, answer: str):
    assert asked(table(*rows))[question] == answer


@pytest.mark.parametrize(
    "rows",
    [
        ("Depot | Notes", "Brill | near the river"),  # a sentence, or a part of one
        ("Date | Speaker", "May | Ada Birk"),  # of several
        ("Depot | Opened", "Brill | 1932", "Brill | 1950"),  # of one name
        ("Depot | Address", "Brill | Brill"),  # its own answer
        ("Depot | Manager", "Brill | vacant"),
        ("Depot | Manager", "Brill | Ada Birk; on Fridays Tom Ark"),
        ("Depot | Vehicles", "Brill | about thirty"),
        ("Depot | Where to find it", "Brill | Kiln Lane"),
        ("Depot | Number", "Brill | 12"),
        ("Depot | Saturday", "Brill | 9 to 12"),
        ("Depot | Minutes", "Brill | 30"),
        ("Operation | Cat", "Spay | €300"),  # the price for one
        ("Depot | Term ends", "Brill | 2025"),
        ("Depot | Wash room", "Brill | yes", "Vell | in the yard"),
        ("Name | Number", "Moira Tate | 204"),
        (" | ", "Moira Tate | 204"),
    ],
)
def test_what_is_not_clear_is_not_asked(rows: tuple[str, ...]):
    assert asked(table(*rows)) == {}


def test_a_cell_of_another_kind_than_its_column_is_left_out():
    found = asked(table("Site | Next review", "Brill | May 2026", "Vell | June 2026", "Oro | overdue"))
    assert set(found.values()) == {"May 2026", "June 2026"}


def test_a_row_that_the_next_one_goes_on_or_that_is_cut_is_left_out():
    assert asked(table("Firm | Manager", "Brill | Ada Birk", " | Tom Ark", "Vell | Ida Ros")).keys() == {
        "Who is the manager of the firm Vell?"
    }
    assert not asked(table("Firm | Manager", "Brill | Dr.").removesuffix(" |"))


def test_what_two_tables_of_a_page_may_say_of_the_same_row_is_not_asked():
    both = table("Drug | Dose", "Vell | 2 ml") + "\n\nRabbits\n\n" + table("Drug | Dose small", "Vell | 1 ml")
    assert asked(both) == {}
    other = table("Drug | Dose", "Vell | 2 ml") + "\n\nStock\n\n" + table("Drug | Supplier", "Vell | Oro")
    assert len(asked(other)) == 2


def test_the_attributes_of_a_section_about_something_else_are_not_the_page_s():
    passages = split_document(Document("d", "Our sites", table("Item | Value", "Phone number | 20 10")), max_words=100)
    for heading, count in ((None, 1), ("Technical data", 1), ("Our sites", 1), ("Harbour clinic", 0)):
        assert len(list(tabled([replace(passage, heading=heading) for passage in passages]))) == count


def test_a_row_of_another_length_is_left_out():
    assert asked("| Depot | Opened |\n|---|---|\n| Brill | 1932 | closed |\n| Vell | 1958 |") == {
        "When was the depot Vell opened?": "1958"
    }


@pytest.mark.parametrize(
    ("text", "short", "long"),
    [
        ("**DMA**: district metered area. A part of the network.", "DMA", "district metered area"),
        ("- CML - customer minutes lost", "CML", "customer minutes lost"),
        ("| SCADA | supervisory control and data acquisition |", "SCADA", "supervisory control and data acquisition"),
        ("NRW: non-revenue water, which is not paid", "NRW", "non-revenue water"),
        ("It looks up the economic level of leakage (ELL) first.", "ELL", "economic level of leakage"),
        ("The Network Intelligence Team (NIT) measures.", "NIT", "Network Intelligence Team"),
    ],
)
def test_an_abbreviation_is_asked_for_where_its_letters_begin_the_words(text: str, short: str, long: str):
    assert asked(text) == {f"What does {short} stand for?": long}


@pytest.mark.parametrize(
    "text", ["RIPPLE: our leak detection software.", "See the manual (PDF) and ask Ada Birk (NIT)."]
)
def test_other_words_beside_capital_letters_are_not_what_they_stand_for(text: str):
    assert asked(text) == {}


def test_a_line_of_a_spreadsheet_is_asked_about_by_its_name():
    text = "Depot: Brill\nOpened: 1932\nManager: Ada Birk"
    found = {cloze.question: cloze for cloze in tabled(split_document(Document("d", "Brill", text), max_words=100))}
    assert {question: cloze.answer for question, cloze in found.items()} == {
        "When was the depot Brill opened?": "1932",
        "Who is the manager of the depot Brill?": "Ada Birk",
    }
    assert {cloze.query for cloze in found.values()} == {"Brill"}
    other = split_document(Document("d", "Oro", text), max_words=100)  # lines of a page that is about something else
    assert not list(tabled(other))


def test_what_one_line_names_is_asked_for_through_another():
    lines = {"Brill": "Depot: Brill\nManager: Ada Birk", "Ada Birk": "Name: Ada Birk\nRole: fitter"}
    by_document = {name: list(tabled(split_document(Document(name, name, text)))) for name, text in lines.items()}
    (chain,) = chains(by_document, {name: name for name in lines})
    assert (chain.question, chain.answer) == ("What is the role of Brill's manager?", "fitter")


def test_another_language_is_not_read():
    text = "Dies ist eine Seite der Firma, und sie wird nicht von allen gelesen.\n\n" + DEPOTS
    assert not list(tabled(split_document(Document("d", "Standorte", text), max_words=100)))
    assert not list(tabled(split_document(Document("d", "Brill", "Ort: Brill\nLeiter: Ada Birk\nName: Brill 2"))))
