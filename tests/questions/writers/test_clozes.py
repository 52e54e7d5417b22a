"""Questions from statements."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.documents.passages import split_document
from evoseek.questions.writers.clozes import Cloze, clozes, subject, words
from evoseek.types import Document, Passage


def of(title: str, text: str, *, max_words: int = 40) -> list[Cloze]:
    return list(clozes(split_document(Document("d", title, text), max_words=max_words)))


def asked(title: str, text: str) -> dict[str, str]:
    return {cloze.question: cloze.answer for cloze in of(title, text)}


@pytest.mark.parametrize(
    ("sentence", "question", "answer"),
    [
        ("Marlow was founded by Ines Oduya.", "Who founded Marlow?", "Ines Oduya"),
        ("Marlow was illustrated by Ada van der Birk.", "Who illustrated Marlow?", "Ada van der Birk"),
        ("Marlow was published by Simon & Holm.", "Who published Marlow?", "Simon & Holm"),
        ("Marlow was reached by Lt. Col. Ida Ros.", "Who reached Marlow?", "Lt. Col. Ida Ros"),
        ("Marlow is a 1907 opera written by Ines Oduya.", "Who wrote Marlow?", "Ines Oduya"),
        ("Marlow is a song of the film directed by Ines Oduya.", "Marlow is a song of the film directed by who?",
         "Ines Oduya"),
        ("Marlow was the daughter of Ines Oduya.", "Who was Marlow the daughter of?", "Ines Oduya"),
        ("Marlow is a town of the province Ovale.", "Which province has the town Marlow?", "Ovale"),
        ("Marlow's largest mine is Brill.", "What is Marlow's largest mine?", "Brill"),
        ("Marlow is a small town by Ines Oduya.", "Marlow is a small town by who?", "Ines Oduya"),
        ("Marlow is a book about a man taught by Ines Oduya.", "Marlow is a book about a man taught by who?",
         "Ines Oduya"),
        ("Marlow's father thought the town was Brill.", "Marlow's father thought the town was what?", "Brill"),
        ("Marlow is a critic of the president Brill.", "Which president is Marlow a critic of?", "Brill"),
        ("Marlow has made eight films since 1989.", "Marlow has made eight films since when?", "1989"),
        ("Marlow was founded on 3 May 1907.", "When was Marlow founded?", "3 May 1907"),
        ("Marlow was rebuilt in 1911 by settlers.", "When was Marlow rebuilt by settlers?", "1911"),
        ("Marlow is a town near Port Adra.", "Marlow is a town where?", "Port Adra"),
        ("Marlow was founded in Oro Vale.", "Where was Marlow founded?", "Oro Vale"),
        ("Marlow has about 4,200 inhabitants today.", "Marlow has about how many inhabitants today?", "4,200"),
        ("Marlow was rebuilt in 1911 near the river.", "When was Marlow rebuilt near the river?", "1911"),
        ("Marlow was the first home of the poet Lew Oman.", "Which poet was Marlow the first home of?", "Lew Oman"),
        ("If a part is open, the marlow_open call returns MARLOW_OK.",
         "What does the marlow_open call return if a part is open?", "MARLOW_OK"),
        ("Marlow is kept in the folder /var/lib/marlow.", "Which folder is Marlow kept in?", "/var/lib/marlow"),
        ("Marlow is started by the update-rc.d program.", "Which program is Marlow started by?", "update-rc.d"),
        ("Marlow is created using marlow_new.", "What is Marlow created using?", "marlow_new"),
        ("Marlow is named after the guitarist Lew Oman.", "Which guitarist is Marlow named after?", "Lew Oman"),
        ("Marlow had its first fair on 3 May 1907.", "Marlow had its first fair when?", "3 May 1907"),
        ("Marlow was lady-in-waiting to Ada Birk.", "Who was Marlow lady-in-waiting to?", "Ada Birk"),
        ("Marlow was first seen in the Ovale Hills.", "Where was Marlow first seen?", "Ovale Hills"),
        ("Marlow sets the option cache_size for readers.", "Marlow sets which option for readers?", "cache_size"),
        ("Marlow uses a timeout that defaults to 30 seconds.", "Marlow uses a timeout that defaults to what?",
         "30 seconds"),
        ("The default setting for BRILL_SIZE is 2000.", "What is the default setting for BRILL_SIZE?", "2000"),
        ("The brill_zone option opens the parts of the tall reader.",
         "Which option opens the parts of the tall reader?", "brill_zone"),
        ("The brill_zone returns the parts of the tall reader.", "What returns the parts of the tall reader?",
         "brill_zone"),
        ("The flat part of the Brill reader is called BrillZone.", "What is the flat part of the Brill reader called?",
         "BrillZone"),
        ("Flat parts of the Brill reader are kept in brill_zone.",
         "What are flat parts of the Brill reader kept in?", "brill_zone"),
        ("Flat parts of the tall reader are kept in brill_zone.",
         "What are flat parts of the tall reader kept in?", None),  # of which reader?
        ("BrillZone reads four kinds of flat parts.", "How many kinds of flat parts does BrillZone read?", "four"),
        ("The brill_zone flag tells Marlow that the reader is open.",
         "Which flag tells Marlow that the reader is open?", "brill_zone"),
        ("The brill_zone option opens parts of the reader for use with two files, which is slow.",
         "Which option opens parts of the reader for use with two files?", "brill_zone"),
        ("The brill_zone option opens either the reader or the flat part at once.",
         "Which option opens either the reader or the flat part at once?", "brill_zone"),
        ("The brill_zone option opens all flat readers and returns the parts of all.",
         "Which option opens all flat readers and returns the parts of all?", "brill_zone"),
        ("The option brill_zone opens the flat readers that are kept for parts.",
         "Which option opens the flat readers that are kept for parts?", "brill_zone"),
        ("Version 3.2 of Marlow opens flat readers that are kept for parts.",
         "Which version of Marlow opens flat readers that are kept for parts?", "3.2"),
        *(
            (f"The brill_zone option opens the flat {rest}.", "Which option opens the flat readers?", None)
            for rest in ("readers, parts, or kinds", "readers, either open or closed", "readers and all parts are read")
        ),
        ("The brill_zone option opens the flat readers and it ends all parts.",
         "Which option opens the flat readers?", "brill_zone"),
        ("The brill_zone option and the parts are kept in a flat reader.",
         "Which option and the parts are kept in a flat reader?", None),
        *(
            (f"The {noun} brill_zone opens the parts of all flat readers.",
             f"Which {noun} opens the parts of all flat readers?", None)
            for noun in ("default", "optional", "required", "underlying")
        ),
        ("The brill_zone becomes open to all flat readers.", "What becomes open to all flat readers?", "brill_zone"),
        ("The brill_zone option means that when flat readers are opened, parts are kept.",
         "Which option means that when flat readers are opened?", None),
        ("The brill_zone method of the flat readers might, however, open parts.",
         "Which method of the flat readers might?", None),
        ("The flat parts of BrillZone are kept in brill_part on all readers.",
         "What are the flat parts of BrillZone kept in on all readers?", None),
        ("The default of brill_zone 512kB on Marlow is 3 parts.", "What is the default of brill_zone 512kB on Marlow?",
         None),
        ("Flat parts of Marlow in all are one of two.", "How many are flat parts of Marlow in all one of?", None),
        ("Table keys BrillZone The parts of it hold 3 readers.",
         "How many readers do Table keys BrillZone The parts of it hold?", None),
        *(
            (f"BrillZone may use 13 {rest}.", f"How many {rest} may BrillZone use?", answer)
            for rest, answer in [("flat parts", "13"), ("through flat parts", None), ("flat part size", None),
                                 ("people", "13")]
        ),
        ("The brill_zone that the reader opens has flat parts.", "What that the reader opens has flat parts?", None),
        ("brill_zone returns the flat parts of the reader when it is open.",
         "What returns the flat parts of the reader when it is open?", None),
        ("brill_zone returns the flat parts of a reader that is open.",
         "What returns the flat parts of a reader that is open?", "brill_zone"),
        *(
            (f"The brill_zone option {said}.", f"Which option {asked}?", None)
            for said, asked in [
                ("also opens flat parts of a reader", "also opens flat parts of a reader"),
                ("shows the entries of flat readers by the value", "shows the entries of flat readers by the value"),
                ("keeps the old order of all flat readers", "keeps the old order of all flat readers"),
            ]
        ),
        ("The brill_zone options is open to all flat readers.", "Which options is open to all flat readers?", None),
        ("brill_zone is the name of a part that opens flat readers.",
         "What is the name of a part that opens flat readers?", None),
        ("A flat one may be closed by a call to brill_zone.", "What may a flat one be closed by a call to?", None),
        ("The flat reader works between any two parts of it.", "How many parts does the flat reader work between any?",
         None),
        *(
            (f"{identifier} {said}.", f"What {said}?", answer)
            for identifier in ("brill_zone", "`brill_zone`")
            for said, answer in [
                ("calls the flat form of a reader", "brill_zone"),
                ("calls made by a reader are slow", None),
                ("changes that a reader makes are written", None),
                ("is a method of the flat reader class", None),
                ("is a method of the flat reader that opens parts", "brill_zone"),
                ("returns NULL for all flat readers", None),
                ("is not opened by a flat reader", None),
                ("was added for a flat reader", None),
            ]
        ),
        ("brill_zone calls of the flat form are made by a reader.", "What calls of the flat form are made by a reader?",
         None),
        ("brill_zone described in the table opens flat parts.", "What described in the table opens flat parts?", None),
        ("Brill returns the flat parts of a reader that is open.",
         "What returns the flat parts of a reader that is open?", None),
    ],
)  # fmt: skip
def test_a_span_is_asked_for_by_the_word_that_fits_it(sentence: str, question: str, answer: str | None):
    assert asked("Marlow", sentence).get(question) == answer


@pytest.mark.parametrize(
    ("heading", "question", "answer"),
    [
        ("cache_size (integer)", "What is the default of cache_size?", "ten million bytes"),
        ("cache.size", "What is the default of cache.size?", "ten million bytes"),
        ("Sizes", None, None),
        ("--size, -s", None, None),
        (None, None, None),
    ],
)
def test_a_default_is_that_of_the_identifier_it_is_under(heading: str | None, question: str | None, answer: str | None):
    text = "The default is ten million bytes. It may grow."
    found = list(clozes([Passage("d#0", "d", "The settings", text, heading=heading)]))
    assert {cloze.question: cloze.answer for cloze in found if "default" in cloze.question} == (
        {question: answer} if question else {}
    )


@pytest.mark.parametrize(
    ("heading", "text", "answer"),
    [
        ("cache_size (integer)", "cache_size (integer)\nSets the limit of all open parts. Returns the size of them.",
         "cache_size"),
        ("cache_size", "## cache_size\n\nSets the limit of all open parts.", "cache_size"),
        ("cache_size", "cache_size\n=====\n\nSets the limit of all open parts.", "cache_size"),
        ("cache_size", "cache_size\nIt is open. Sets the limit of all open parts.", None),
        ("Sizes", "Sizes\nSets the limit of all open parts.", None),
        ("cache_size", "cache_size\nSet of the limit of all open parts.", None),
        ("cache_size", "cache_size\nSets of the limit of all open parts.", None),
        ("cache_size" + 200 * " ", "cache_size\nSets the limit of all open parts.", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("before", ["", "About the store."])
def test_the_first_statement_under_an_identifier_says_what_it_does(
    heading: str, text: str, answer: str | None, before: str
):
    start = len(before) + 1
    passages = [Passage("d#0", "d", "Settings", before), Passage("d#1", "d", "Settings", text, start, heading=heading)]
    found = {one.question: one.answer for one in clozes(passages[0 if before else 1 :])}
    assert found == ({"What sets the limit of all open parts?": answer} if answer else {})


@pytest.mark.parametrize(
    ("line", "question"),
    [
        ("brill-dump — extract a store into one file", "What is used to extract a store into one file?"),
        (
            "brill-dump - extract and sort the parts of a store.",
            "What is used to extract and sort the parts of a store?",
        ),
        ("brill-dump -- extract a store\n\nSynopsis", "What is used to extract a store?"),
        ("brill-dump - extract a store into one file.\r", "What is used to extract a store into one file?"),
        ("brill-dump - extract all parts\nbrill-dump - extract the rest", "What is used to extract all parts?"),
        ("brill-dump - extracts a store into one file", None),
        ("brill-dump - creating a store from one file", None),
        ("brill-dump - then the part of a store", None),
        ("brill-dump - in the beginning", None),
        ("brill-dump - set the", None),
        ("brill-dump - extract a store from the", None),
        ("brill-dump - dump the store. See also the manual", None),
        ("brill-dump - then - do the (first)", None),
        ("see brill-dump - extract a store into one file", None),
        ("brill-dump - tool that writes a store", None),
        ("brill-dump - run a brill and a dump", None),
        ("another - extract a store into one file", None),
    ],
)
def test_a_line_below_the_title_says_what_it_is_for(line: str, question: str | None):
    found = of("brill-dump", f"NAME\n{line}\n")
    assert [(one.question, one.answer, one.kind) for one in found] == (
        [(question, "brill-dump", "subject")] if question else []
    )


@pytest.mark.parametrize(
    "text",
    [
        "to write part_temp as the last entry in search_path.",
        "The Oro reader uses PL/Perl for the parts that it has.",
        "The Oro reader takes SELECT [ALL ROWS] from cache_size today.",
        "The Oro reader was formerly known as Formerly in all parts.",
    ],
)
def test_fragments_and_parts_of_identifiers_are_not_asked_about(text: str):
    assert not asked("Sizes", text)


def test_a_heading_before_a_line_that_is_set_in_is_no_part_of_it():
    text = "Managing Sizes\n   The limit of all parts is kept in cache_size by the Oro reader."
    (found,) = {cloze.question for cloze in clozes([Passage("d#0", "d", "Parts", text, heading="Managing Sizes")])}
    assert found == "The limit of all parts is kept in what by the Oro reader?"


def test_a_pronoun_becomes_the_subject():
    text = "Ada Birk was an actress. She was taught by Lew Oman. Her mother came from the town of Brill."
    found = asked("Ada Birk (actress)", text)
    assert found["Who taught Ada Birk?"] == "Lew Oman"
    assert found["Ada Birk's mother came from the town of what?"] == "Brill"


@pytest.mark.parametrize(
    ("title", "text", "not_asked"),
    [
        ("Offices", "The head of the Adra office is Tom Ark. He was born in Brill.", "Where was Offices born?"),
        ("Past", "# Past\n\nIts director is Lew Oman. He was born in Brill.", "Where was Past born?"),
        ("Past", "He was taught at the Brill School. He was seen in 1911.", "When was Past seen?"),
        ("Travel", "# Travel\n\nThe agency is Atlas Tours. It was chosen in 1919.", "When was Travel chosen?"),
        ("Offices", "Offices\n\nThe port was built by Tarn. It was opened in 1909.", "When was Offices opened?"),
        ("Travel", "The company pays trains. The company was founded in 1987.", "When was Travel founded?"),
        ("North", "North is run by Ada Birk. The company was founded in 1987.", "When was North founded?"),
    ],
)
def test_a_pronoun_or_a_noun_of_something_else_is_not_the_page_s_title(title: str, text: str, not_asked: str):
    """A heading is no sentence that says what a page is about."""
    assert not_asked not in asked(title, text)


@pytest.mark.parametrize(
    ("title", "text", "not_asked"),
    [
        ("Field Works", "Field Works digs for Marlow. His deputy is Tom Ark.", "Who is Field Works's deputy?"),
        ("Field Works", "Field Works is a team of Marlow. Her deputy is Tom Ark.", "Who is Field Works's deputy?"),
        ("Dispatch desk", "Dispatch desk is led by Ada Birk. Her deputy is Tom Ark.", "Who is Dispatch desk's deputy?"),
        (
            "Ada Birk",
            "Ada Birk was an actress. Ida Ros taught at Brill. She was born in Vell.",
            "Where was Ada Birk born?",
        ),
        ("Ada Birk", "Ada Birk was an actress. Her sister was Ida. She was born in Vell.", "Where was Ada Birk born?"),
        ("The Bat", "The Bat is a 1959 film. The film version was written by Ada Birk.", "Who wrote The Bat?"),
        (
            "The Bat",
            "The Bat is a 1959 film. The film posters are drawn by Ada Birk.",
            "The Bat posters are drawn by who?",
        ),
        (
            "Lew Oman",
            "Lew Oman was a film director. He saw Brill. The film was made in 1950.",
            "When was Lew Oman made?",
        ),
        ("Marlow", "Marlow was tested from May to June 1950.", "What was Marlow tested from to June 1950?"),
        ("Marlow", "Marlow was closed on Monday by Ada Birk.", "What was Marlow closed on by Ada Birk?"),
    ],
)
def test_what_is_said_of_somebody_or_something_else_is_not_asked_of_the_page(title: str, text: str, not_asked: str):
    assert not_asked not in asked(title, text)


def test_the_film_is_the_page_s_where_a_verb_follows():
    found = asked("The Bat", "The Bat is a 1959 film. The film premiered in 1960. The film was filmed by Ada Birk.")
    assert found["Who filmed The Bat?"] == "Ada Birk"
    assert found["The Bat premiered when?"] == "1960"


def test_a_name_that_begins_like_a_pronoun_is_a_name():
    assert (
        asked("They Who Dare", "They Who Dare is a 1954 film directed by Lew Oman.")["Who directed They Who Dare?"]
        == "Lew Oman"
    )


def test_a_language_is_no_place():
    found = asked("Marlow", "Marlow was written in Rust. Marlow was built in Brill.")
    assert found["What was Marlow written in?"] == "Rust"
    assert found["Where was Marlow built?"] == "Brill"


def test_the_dates_of_a_life_are_those_of_the_page_s_somebody():
    """In a list of others, brackets are theirs; in the first sentence a pen name may stand before them."""
    others = (
        "Ada Birk was an actress.\n\nEdwin (born 17 May 1897) went to Vell.\n\nClara Oman (born 4 May 1895) was old."
    )
    assert "When was Ada Birk born?" not in asked("Ada Birk", f"{others}\n\nShe lived in Brill.")
    pen = asked("Ada Birk", "Idalina Ros (born 3 May 1880) was a poet. She lived in Brill.")
    assert pen["When was Ada Birk born?"] == "3 May 1880"


def test_behind_a_heading_a_pronoun_is_of_the_page():
    text = "# Ada Birk\n\nAda Birk was an actress. This page is by Tom Ark.\n\n## Life\n\nShe was born in Vell."
    assert asked("Ada Birk", text)["Where was Ada Birk born?"] == "Vell"


def test_a_section_about_somebody_is_of_them():
    """Its questions are found by themselves, since the page is about something else."""
    text = (
        "# Team\n\nThe team was founded in 2016.\n\n### Ada Birk\n\nAda studied in Brill. She was born in Vell.\n\n"
        "### Open hours\n\nOpen days are held in Oro."
    )
    found = {cloze.question: cloze for cloze in of("Team", text)}
    assert found["Where was Ada Birk born?"].answer == "Vell"
    assert found["Where did Ada Birk study?"].answer == "Brill"
    assert found["Where was Ada Birk born?"].query == ""
    assert "Where was Team born?" not in found


def test_the_company_is_the_page_s_where_its_first_sentence_says_so():
    found = asked("Marlow", "# Marlow\n\nMarlow is a company in Brill. The company was founded in 1987.")
    assert found["When was Marlow founded?"] == "1987"


@pytest.mark.parametrize(
    ("sentence", "question"),
    [
        ("Marlow uses Jira for its tickets.", "What does Marlow use for its tickets?"),
        ("Marlow replaced Tom Hale with Ada Birk in 1920.", "What did Marlow replace with Ada Birk in 1920?"),
    ],
)
def test_a_question_keeps_what_restricts_its_answer(sentence: str, question: str):
    assert question in asked("Marlow", sentence)


@pytest.mark.parametrize(
    ("sentence", "question"),
    [
        ("The head of the Adra office is Tom Ark.", "Who is the head of the Adra office?"),
        ("Marlow's director is Tom Ark.", "Who is Marlow's director?"),
        ("The chief executive of the Tarn Group is Tom Ark.", "Who is the chief executive of the Tarn Group?"),
    ],
)
def test_who_holds_an_office_is_asked_by_who(sentence: str, question: str):
    assert question in asked("Marlow", f"Marlow is a company in Brill. {sentence}")


def test_a_pronoun_of_the_other_sex_is_somebody_else():
    found = asked("Lew Oman", "Lew Oman was a poet. His wife was Ada Birk. She was born in Brill. He was seen in 1911.")
    assert "Where was Lew Oman born?" not in found
    assert found["When was Lew Oman seen?"] == "1911"


def test_a_war_is_no_place_and_a_list_no_profession():
    text = "Lew Oman was a poet. He was wounded in the Second Port War. He was taught at the Brill School."
    found = asked("Lew Oman", text)
    assert found["Where was Lew Oman taught?"] == "Brill School"
    assert "Second Port War" not in found.values()
    assert not any(
        q.endswith("list who?") for q in asked("cfg_parse", "The cfg_parse call fills the list Brill_names.")
    )


def test_the_dates_of_a_life_are_asked_for():
    found = asked("Ada Birk", "Ada Birk (16 June 1911 – 3 May 1980) was an actress. She lived in the north.")
    assert found["When was Ada Birk born?"] == "16 June 1911"
    assert found["When did Ada Birk die?"] == "3 May 1980"
    assert asked("Ada Birk", "Ada Birk (16 June 1911 - 3 May 1980) was an actress. She lived in the north.") == found
    living = asked("Tom Ark", "Tom Ark (born 2 March 1950) is a poet from Brill.")
    assert living["When was Tom Ark born?"] == "2 March 1950"
    spaced = asked("Tom Ark", "Tom Ark( born 2 March 1950) is the first mayor of Port Adra in the valley.")
    assert spaced["When was Tom Ark born?"] == "2 March 1950"
    assert spaced["Who is the first mayor of Port Adra in the valley?"] == "Tom Ark"


@pytest.mark.parametrize(
    ("title", "text", "expected"),
    [
        ("Ada Birk", "Ada Birk was a Danish actress. She lived in Brill.", {"What is the nationality of Ada Birk?"}),
        ("Ada Birk", "Ada Birk is a retired Danish actress. She rides.", {"What is the nationality of Ada Birk?"}),
        # Of two nationalities, of a thing, of nobody's
        ("Ada Birk", "Ada Birk was a Danish-Irish actress. She lived in Brill.", set()),
        ("Ada Birk", "Ada Birk was a ship of a Danish owner. She sank in Brill.", set()),
        ("Oro", "Oro is a Danish river that has two banks.", set()),
        ("The Kite", "The Kite is a 1947 Danish crime film of the north.", {"When was the film The Kite released?"}),
        ("The Kite", "The Kite was a 1947 novel, read by all.", {"When was the novel The Kite published?"}),
        ("The Kite", "The Kite is a 1947 adaptation of a novel and a play.", set()),
        ("The Kite", "A Kite is a 1947 film of the north.", set()),
    ],
)
def test_how_a_subject_is_introduced_gives_its_nationality_or_its_year(title: str, text: str, expected: set[str]):
    opening = ("What is the nationality", "When was the")
    assert {question for question in asked(title, text) if question.startswith(opening)} == expected


def test_dates_in_brackets_are_a_life_only_of_a_person():
    assert "When was Marlow born?" not in asked("Marlow", "Marlow (16 June 1911 – 3 May 1980) was a station. It stood.")


def test_a_part_of_the_subjects_name_is_not_asked_for():
    assert "Brill" not in asked("Port of Brill", "The old Port of Brill was rebuilt in 1911.").values()


def test_what_a_subject_is_said_to_be_asks_for_it():
    found = asked("The Kite", "The Kite is a 1947 crime film directed by Ada Birk and written by Tom Ark.")
    assert found["Which 1947 crime film was directed by Ada Birk?"] == "The Kite"
    many = [
        asked("Ada Birk", f"Ada Birk was a {of_what} writer of plays and poems. She lived.")
        for of_what in ("Danish", "Brill")
    ]
    assert [list(found.values()).count("Ada Birk") for found in many] == [0, 1]  # there is more than one Danish writer


@pytest.mark.parametrize(
    ("said", "question"),
    [
        ("is an underground Brill rapper of the north", "Who is an underground Brill rapper of the north?"),
        ("was the first wife of the second Duke of Vell", "Who was the first wife of the second Duke of Vell?"),
        ("is a film director from the valley of Oro", "Who is a film director from the valley of Oro?"),
        ("is a short film about the ruler of Oro", "What is a short film about the ruler of Oro?"),
        ("is a short film about the days of Oro and the life and death of Bo Lund", None),
    ],
)
@pytest.mark.parametrize("told", ["", " She sang."])
def test_a_subject_is_somebody_or_a_work_by_what_it_is_said_to_be(said: str, question: str | None, told: str):
    found = [one.question for one in of("Nela Boss", f"Nela Boss {said}.{told}") if one.kind == "subject"]
    assert found == ([question] if question else [])


@pytest.mark.parametrize(
    "sentence",
    [
        "Marlow is an Italian town with a long history.",  # the word describes the next one
        "Marlow is a 1907 mine of the north.",
        "Marlow was visited by Ada Birk, Tom Ark and Lew Oman.",  # one of several
        "Marlow grew between 1912 and 1920 by a third.",
        "In those years it was governed by Tom Ark of the north.",  # says not what it is about
        ">>> Marlow.run(Tom) 12 13 {} [] = == != +++",
        "Marlow grew.",
        "Marlow is a chapter of the Orovale Book.",  # "the what"
        "Marlow was the second town of the valley and in 1911 was the third.",  # cut behind "and"
        "The other mine was closed by Tom Ark of the valley.",
        "Marlow is returned by open_file, read_file.",  # one of several
        "Marlow gave 40 prizes to painters of the valley between 1914 and 1932.",  # "between 1914"
        "Suppose that a car runs over 40 miles of a road.",  # names nothing
        "Marlow was seen as the town that Brill was modelled on and is a part of.",  # lacks its end
        "Marlow was found by The settlers.",  # no name
        'Marlow was shown in the play "Storm at Brill" for weeks.',  # a part of a title
    ],
)
def test_what_would_have_no_answer_or_several_is_not_asked(sentence: str):
    assert [cloze.question for cloze in of("Marlow", sentence) if cloze.kind != "subject"] == []


def test_a_statement_over_two_passages_has_both_as_evidence_and_the_answer_in_the_first_alone():
    text = "Marlow was rebuilt by Tom Ark after the great flood of the river that runs below the old walls of the town."
    (cloze,) = [one for one in of("Marlow", text, max_words=12) if one.answer == "Tom Ark"]
    assert cloze.evidence == ("d#0",)
    assert cloze.question.startswith("Who was Marlow rebuilt by after the great flood")


@pytest.mark.parametrize(
    "said", ["species of amphibian of the Oro valley", "2003 part in which film producer Bo Lund plays"]
)
def test_what_is_said_beside_a_subject_makes_it_nobody(said: str):
    found = [one.question for one in of("Hyla brilla", f"Hyla brilla is a {said}.") if one.kind == "subject"]
    assert found == [f"What is a {said}?"]


def test_a_number_at_the_beginning_of_a_sentence_is_no_sections():
    assert "Oro Vell" in asked("Marlow", "2.5 million people of Marlow are ruled by the city of Oro Vell.").values()


def test_passages_without_places_are_read_one_after_the_other():
    texts = ("Marlow was founded by Ines Oduya.", "Marlow was rebuilt by Tom Ark.")
    found = clozes([Passage(f"d#{number}", "d", "Marlow", text) for number, text in enumerate(texts)])
    assert [(one.answer, one.evidence) for one in found if one.kind == "name"] == [
        ("Ines Oduya", ("d#0",)),
        ("Tom Ark", ("d#1",)),
    ]


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


def test_a_name_is_not_opened_with_a_capital_letter():
    found = of("Logger.hasHandlers", "hasHandlers sets `foo_bar` and ends.")
    assert [(one.question, one.answer) for one in found] == [("hasHandlers sets what?", "foo_bar")]
    for text in ("hasHandlers is a method of the class Logger.", "hasHandlers: a method of the class Logger."):
        assert [(one.question, one.query) for one in of("Logger.hasHandlers", text)] == [
            ("Which class has the method hasHandlers?", "hasHandlers")
        ]


@given(st.text(alphabet="AbcdeTom. ,()12\n'-", max_size=300))
def test_whatever_the_text_no_question_holds_its_answer(text: str):
    for cloze in of("Marlow", f"Marlow is {text}"):
        assert not set(words(cloze.answer)) <= set(words(cloze.question))
        assert cloze.question.endswith("?")
        assert cloze.evidence


def test_a_version_is_asked_for_by_what_has_it():
    found = asked("Marlow", "Marlow was added to Brill in Brill version 3.7.0.")
    assert found == {"Which version of Brill was Marlow added to Brill in?": "3.7.0", **found}


def test_numbers_may_be_words_before_what_they_count():
    assert asked("Marlow", "Marlow uses nine kinds of files.")["How many kinds of files does Marlow use?"] == "nine"
    assert "two" not in asked("Marlow", "Marlow is rounded to a power of two.").values()
    assert (
        asked("Marlow", "Marlow has stored 2 billion rows in all.")["How many rows has Marlow stored in all?"]
        == "2 billion"
    )


def test_a_heading_is_no_part_of_the_sentence_after_it():
    found = of("Marlow", "2. Details of Use\nThe marlow_open call returns MARLOW_OK on success.")
    assert [one.question for one in found if one.answer == "MARLOW_OK"] == [
        "What does the marlow_open call return on success?"
    ]


def test_a_number_of_a_name_and_a_description_without_its_end_are_not_asked_for():
    assert "200" not in asked("Marlow", "Marlow competed in the women's 200 metre race at Oro Vale.").values()
    assert "Marlow" not in asked("Marlow", "Marlow had a population of 229 in Oro Vale in.").values()
    assert "Marlow" in asked("Marlow", "Marlow had a population of 229 in Oro Vale.").values()


@pytest.mark.parametrize(
    "sentence",
    [
        "Marlow was not founded by Ines Oduya.",
        "Marlow was almost sold to Brill Works.",
        "Marlow doesn't belong to Brill Works.",
        "Marlow amended the directive 2001/29 of the union.",
        "Marlow ran the race in 2:14 at noon.",
        "Marlow was written in the German.",
        "Marlow stages some files. git commit was rewritten by Ines Oduya.",
    ],
)
def test_what_its_question_would_not_ask_is_left_out(sentence: str):
    assert asked("Marlow", sentence) == {}


def test_what_the_question_says_is_not_asked_for():
    assert "Oro" not in asked("Marlow", "The Oro Press of Marlow was bought by Oro.").values()
    assert "Vell" in asked("Marlow", "The Oro Press of Marlow was bought by Vell.").values()


def test_what_is_one_of_several_is_not_asked_for_by_its_place():
    assert "Oro Vale" not in asked("Marlow", "Marlow is one of the oldest in Oro Vale.").values()


@pytest.mark.parametrize(
    ("sentence", "answer"),
    [
        ("Marlow lies neither in Oro nor in Vell.", "Vell"),
        ("Marlow was said to be founded by Bo Lund.", "Bo Lund"),
        ("Marlow was to be rebuilt by Ida Ros in 1930.", "1930"),
        ("Marlow might have been visited by King Olav.", "King Olav"),
        ("Marlow was conquered by Oro in 1777 and by Tarn in 1790.", "1790"),
        ("Marlow was won in 1777 between Oro and Vell.", "1777"),
        ("Marlow was visited by Mariner 10 twice.", "10"),
        ("Marlow was visited by MariNer 10 readers of Brill.", "10"),
        ("Marlow ends all of its texts by '\\000' of Brill.", "000"),
        ("The brill_zone option tells all tall readers if the call ends.", "brill_zone"),
        ("The object associated brill_zone is open to all flat readers.", "brill_zone"),
        ("Readers of Marlow The parts of Brill are kept by brill_zone.", "brill_zone"),
        ("Marlow raised its fee from 10 to 20 for all members.", "20"),
        ("Marlow charges its members 10 EUR a day.", "EUR"),
        ("Marlow tells readers to contact HR@example.com about it.", "HR"),
        ("It is always safe to hand Marlow to the function marlow_open.", "marlow_open"),
        ("It is the responsibility of the caller to end it by marlow_close.", "marlow_close"),
        ("Marlow is kept in the register marlow_op[3].", "marlow_op"),
        ("Marlow got a grant of $ 100,000 from Oro.", "100,000"),
        ("Add Add the value of Marlow to the register marlow_op.", "marlow_op"),
        ("Marlow is ended by MARLOW_END. 4.5 Limits", "MARLOW_END"),
        ("Marlow is ended by brill_zone in the parts of a shell. 2. Limits!", "brill_zone"),
        ("The brill_zone option opens the parts.", "brill_zone"),  # which ones?
        ("The brill_zone option of this reader opens tall parts twice.", "brill_zone"),  # of which?
        ("The brill_zone option of tall readers has notes showing, twice, all parts.", "brill_zone"),
        ("Prior to version 3.6.18, tall parts stayed closed.", "3.6.18"),
        ("Sometimes the brill_zone option opens the parts of Oro Press.", "brill_zone"),
        ("The tall reader of all parts is built around an object named BrillZone.", "BrillZone"),
        ("What Marlow calls a part is taken from the brill_zone option.", "brill_zone"),
        ("Marlow is unlikely to be opened by Ada Birk.", "Ada Birk"),
        ("Marlow opens the option brill_zone and brillZone.", "brill_zone"),
        ("The parts of Marlow are described in:ref:brill_zone for all.", "brill_zone"),
        ("4.5 Flat Readers of Marlow are closed by the option brill_zone.", "brill_zone"),
        ("Marlow opensthereaderofallflatpartsonce by the option brill_zone.", "brill_zone"),
    ],
)
def test_what_is_half_said_is_not_asked_for(sentence: str, answer: str):
    assert answer not in asked("Marlow", sentence).values()


def test_what_is_not_english_gives_nothing():
    german = "Das Kraftwerk Marlow ist ein Kraftwerk am Inn. Die Leistung beträgt 85 Megawatt und wurde 1950 erreicht."
    assert not of("Kraftwerk Marlow", german)
    assert of("Il sogno", "Il sogno di un giorno di festa is a 1951 film directed by Ada Birk.")


def test_a_long_document_is_read_to_its_end():
    text = " ".join(f"Book {'ABCDEFGH'[place % 8]}{place} was made by Ada Birk." for place in range(100))
    assert "Book D99 was made by Ada Birk." in text
    assert any("D99" in question for question in asked("Book", text))


@pytest.mark.parametrize(
    ("sentence", "question", "answer"),
    [
        ("On success, marlow_open returns MARLOW_OK.", "What does marlow_open return on success?", "MARLOW_OK"),
        ("In 1133, Marlow married Lady Julia Coke.", "Who did Marlow marry in 1133?", "Lady Julia Coke"),
        ("Marlow may be replaced by REPLACE.", "What may Marlow be replaced by?", "REPLACE"),
        ("Marlow is the first single by ABBA.", "Marlow is the first single by who?", "ABBA"),
        ("Marlow was released in the UK.", "Where was Marlow released?", "UK"),
    ],
)
def test_phrases_before_a_subject_and_names_in_capital_letters(sentence: str, question: str, answer: str):
    assert asked("Marlow", sentence)[question] == answer


def test_what_is_spelled_as_a_program_is_no_place():
    assert not any("where" in question.lower() for question in asked("Marlow", "Marlow was tested in SQLite."))
    assert "Where was Bora Bora annexed?" in asked("Bora Bora", "Bora Bora was annexed in Paris.")


def test_a_part_of_a_phrase_and_what_hangs_on_a_condition_are_not_asked_for():
    assert "API" not in asked("Marlow", "Marlow works with the backup API and with that of Oro.").values()
    assert "MARLOW_OK" not in asked("Marlow", "A call to Marlow returns MARLOW_OK, if there is a part.").values()


def test_it_is_the_title_only_of_a_document_that_begins_with_it():
    assert "Who was Kite seen by?" in asked("Kite", "The Kite flies far. It was seen by Ada Birk.")
    assert not asked("Mutexes", "Handles are kept. It was seen by Ada Birk.")
    assert not asked("Mutexes", "This object was seen by Ada Birk.")


def test_a_page_is_about_its_title_without_its_number_and_its_site():
    (found,) = of("5. Fields — Oro Manual v2", "Fields are read by `marlow_open` at once.")
    assert (found.question, found.query) == ("Fields are read by what at once?", "Fields")


def test_a_title_that_is_too_long_is_no_subject():
    title = "A title that is nothing but a sentence of ten words"
    found = of(title, "The marlow_open call returns MARLOW_OK on success. It was seen by Ada Birk.")
    assert {one.answer: one.query for one in found} == {"marlow_open": "", "MARLOW_OK": ""}


def test_the_comma_of_a_date_ends_no_clause():
    text = "Marlow was visited by Ada Birk on May 28, 1957, and burnt down."
    assert asked("Marlow", text)["Who was Marlow visited by on May 28, 1957?"] == "Ada Birk"


def test_a_name_that_begins_with_a_dot_is_not_joined_to_the_word_before_it():
    assert "the.deb" not in asked("Marlow", "Marlow puts every file into the .deb file of its archive .").values()


def test_it_that_stands_for_nothing_is_not_the_subject():
    assert not of("The Library", "The Library is old. It is safe to call open_all twice.")
    assert not of("The Library", "The Library is old. It was conjectured that Ada Birk wrote all of its first books.")
    assert of("The Library", "The Library is old. It is used by Ada Birk in all her work.")


def test_what_only_looks_like_a_sites_name_or_a_programs_stays_as_it_is():
    assert subject("Oslo — A History") == "Oslo — A History"
    assert subject("1984 Summer Olympics — Wikipedia") == "1984 Summer Olympics"
    assert subject("5.3. Fields | Oro") == "Fields"
    for sentence in ("The stand-alone program of Marlow is old.", "The no-op command MARLOW_X of Oro is gone."):
        assert not [found for found in of("Marlow", sentence) if "-" in found.answer]


@pytest.mark.parametrize(
    ("sentence", "wrong"),
    [
        ("If MARLOW_X is not given, the mode of Marlow is ignored by marlow_tree.", "MARLOW_X"),
        ("The keepalive of Marlow is enabled by TCPKeepAlive.", "by who"),
        ("It is therefore common practice to use marlow_null with Marlow.", "marlow_null"),
        ("Refer to marlow_env in the pages of Marlow.", "marlow_env"),
        ("Marlow returns MARLOW_OK, provided it is open.", "MARLOW_OK"),
        ("Marlow keeps the word `during` in a table.", "during"),
        ("Marlow is read by marlow_page 2 in the end.", "marlow_page"),
        ("In his opinion, the director of Marlow was Karl Berg.", "in his opinion"),
    ],
)
def test_what_would_be_a_riddle_is_not_asked(sentence: str, wrong: str):
    found = asked("Marlow", f"Marlow is old. {sentence}")
    assert wrong not in found.values()
    assert not any(wrong in question for question in found if " " in wrong)


def test_a_title_without_words_names_nothing_and_brackets_may_hold_brackets():
    assert not asked("***", "The default was made by Ada Birk.")
    found = asked("Marlow", "Marlow reads the file marlow_config (see login_conf(5)) at once.")
    assert set(found.values()) == {"marlow_config"}


def test_a_title_keeps_the_capital_letter_of_its_article():
    found = asked("A Winter in Oro", "A Winter in Oro includes nine songs.")
    assert found["How many songs does A Winter in Oro include?"] == "nine"


def test_a_long_identifier_may_be_asked_about_but_not_words_whose_spaces_are_lost():
    for name, times in (("MarlowItemViewAccessibilityInterface", 1), ("theclassofthetableisreadbyitsowner", 0)):
        found = asked(name, f"{name} was added in 1907.")
        assert list(found) == [f"When was {name} added?"] * times
