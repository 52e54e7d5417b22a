"""Passages: exact offsets, nothing lost, and cuts where a reader would make them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.documents.passages import count_words, sentences, split_document
from evoseek.errors import ConfigError
from evoseek.types import TERM, Document, Mark, Passage

TEXTS = st.lists(
    st.sampled_from(["Kalo", "is", "a", "city.", "\n", "\n\n", " ", "  ", "東京都。", "…", "é", "x" * 250]), max_size=80
).map(" ".join) | st.text(max_size=300)


def texts(text: str, max_words: int) -> list[str]:
    return [passage.text for passage in split_document(Document("d", "T", text), max_words=max_words)]


@given(TEXTS, st.integers(1, 30))
def test_passages_are_exact_and_lose_nothing(text: str, max_words: int) -> None:
    passages = split_document(Document("d", "T", text), max_words=max_words)
    assert [passage.id for passage in passages] == [f"d#{number}" for number in range(len(passages))]
    end = 0
    for passage in passages:
        assert passage.text == text[passage.start : passage.end] == passage.text.strip()
        assert text[end : passage.start].strip() == ""
        assert 1 <= len(passage.text.split()) <= max_words
        assert (passage.title, passage.document_id) == ("T", "d")
        end = passage.end
    assert text[end:].strip() == ""


@given(st.integers(1, 500), st.integers(1, 20))
def test_text_without_spaces_cannot_make_a_passage_of_unbounded_length(length: int, max_words: int) -> None:
    assert all(len(part) <= 100 * max_words for part in texts("x" * length * 10, max_words))
    assert all(len(part) <= max_words for part in texts("京" * length, max_words))


def test_cuts_at_a_paragraph_before_a_sentence_before_a_word() -> None:
    assert texts("one two three.\n\nfour. five six seven", 6) == ["one two three.", "four. five six seven"]
    assert texts("one two three. four five six seven", 6) == ["one two three.", "four five six seven"]
    assert texts("one two three four five six seven", 6) == ["one two three four five six", "seven"]
    # The only border lies in the first half: better a short passage than a cut sentence.
    assert texts("one. two three four five six seven", 6) == ["one.", "two three four five six seven"]


SENTENCES = (
    "Dr. Birk met Prof. Tolu at approx. 5 p.m. on the 3. Mai in St. Aalby, e.g. at the U.S. depot.",
    "See Fig. 3 and no. 5 (cf. Vol. 2, pp. 7 ff.), i.e. what J. R. Kalo Jr. of Kalo Inc. and J.-P. Vesu et al. wrote.",
    "Am 3. Mai traf Dr. Birk, geb. 1958, z. B. Prof. J. S. Tolu usw. im 2. Stock der Müller-Str. 5, vgl. Abb. 3.",
    "Ludwig XIV. von Kalo lebte im 17. Jahrhundert, d. h. vor dem 2. Weltkrieg, ca. am 3. und 4. Tag.",
    "M. Dupont et MM. Tolu, p. ex. le Dr. J.-P. Birk, ont vendu env. 40 pompes au no. 5 de la rue.",
    "El Sr. Tolu habló, p. ej. en la pág. 12 y el art. 3, con la Dra. Birk aprox. a las 5 p. m. sobre el agua.",
    "Il sig. Tolu e il dott. Birk, ecc. ecc., abitano a pag. 5.",
    "De dhr. Tolu woont bijv. op nr. 5, blz. 7.",
    "В доме им. Толу на ул. Мира, т. е. рядом, жил проф. А. С. Толу.",
    "3. května přišel p. Tolu a odešel 4. června.",
    "ブルクは「水は甘い。」と言った。",
)
"""Each of one sentence, whatever points are in it."""

QUOTED = (
    "「水は甘い。」", "『水は甘い！』", "（水は甘い。）", "【水は甘い？】", "“水很甜。”", "《水很甜！》", "｢水は甘い｡｣",
    "یہ شہر نیا ہے۔", "क्या यह नया है॥", "ဒီမြို့ဟာ ဟောင်းတယ်။", "ទីក្រុងនេះចាស់។", "ከተማው አሮጌ ነው።", "քաղաքը հին է։",
    "„Das Wasser ist süß.“", "»Das Wasser ist süß!«", "« L’eau est douce. »", "(The water is sweet.)",
    "**The water is sweet.**", "_The water is sweet._", "The water is sweet.[3]",
    "It was in 2003.", "It is at 5 p.m.",
)  # fmt: skip
"""What ends a sentence."""


@pytest.mark.parametrize("sentence", SENTENCES)
def test_points_within_a_sentence_are_no_ends_of_it(sentence: str) -> None:
    """A passage has room for one sentence, and for a part of the next."""
    words = count_words(sentence)
    for room in range(words + 1, 2 * words - 1):
        parts = texts(f"{sentence} " * 4, room)
        assert [part.rstrip() for part in parts] == [sentence] * 4, room


@pytest.mark.parametrize("sentence", QUOTED)
def test_a_sentence_ends_with_its_quotation_mark_or_bracket_in_any_script(sentence: str) -> None:
    length = count_words(sentence)
    for room in range(length + 1, 2 * length):
        assert texts(f"{sentence} " * 5, room) == texts(f"{sentence}\n" * 5, room) == [sentence] * 5
        if not sentence.isascii() and " " not in sentence:
            assert texts(sentence * 5, room) == [sentence] * 5


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("It was in May.", "The depot is old."),
        ("There were 12.", "Most of them left."),
        ("It is in the U.S.", "The depot is old."),
        ("It won World War II.", "Kalo lost it."),
        ("It stops at 5 p.m.", "Pumps are off then."),
        ("He likes plan B.", "It is cheaper."),
        ("It has pumps, lamps etc.", "Pumps are old."),
        ("It was built by Kalo Inc.", "It is old."),
        ("That is a work of art.", "Birds see it."),
        ("1. Open the lid.", "2. Close the tap."),
        ("The answer is no.", "Pumps are old."),
        ("one two three.", "four five six"),
    ],
)
def test_a_point_that_ends_a_sentence_is_still_seen(first: str, second: str) -> None:
    longer, shorter = sorted((count_words(first), count_words(second)), reverse=True)
    for room in range(longer, longer + shorter):
        assert texts(f"{first} {second}", room) == [first, second]


def test_what_fits_is_one_passage_and_nothing_is_none() -> None:
    assert texts("one. two.\n\nthree.", 3) == ["one. two.\n\nthree."]
    assert texts(" \n ", 3) == []


def test_thai_is_cut_between_phrases_and_never_within_a_character() -> None:
    assert texts("น้ำหวาน ภูเขาสูง แม่น้ำยาว ท้องฟ้าสีฟ้า", 11) == ["น้ำหวาน ภูเขาสูง", "แม่น้ำยาว", "ท้องฟ้าสีฟ้า"]
    assert texts("น้ำน้ำน้ำ", 1) == ["น้ำ", "น้ำ", "น้ำ"]
    assert all(len(part) <= 20 for part in texts("ก" + "้" * 100, 2))


def test_no_words_at_all_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_words=0"):
        split_document(Document("d", "", "x"), max_words=0)


def sections(text: str, max_words: int, *marks: Mark) -> list[tuple[str, int | None, str | None]]:
    """Texts, pages and headings of the passages."""
    passages = split_document(Document("d", "T", text, marks=marks), max_words=max_words)
    return [(passage.text, passage.page, passage.heading) for passage in passages]


def marked(text: str, *headings: str) -> list[Mark]:
    """The headings of a Markdown text."""
    return [Mark(text.index(line), heading=line.lstrip("# "), level=line.count("#")) for line in headings]


def test_a_passage_has_the_page_and_heading_that_it_stands_under() -> None:
    marks = (Mark(0, page=1), Mark(5, page=2, heading="Meri"))
    document = Document("d", "T", "Kalo. Meri. Supa.", file="d.pdf", marks=marks)
    found = split_document(document, max_words=1)
    assert [(p.text, p.file, p.page, p.heading) for p in found] == [
        ("Kalo.", "d.pdf", 1, None),
        ("Meri.", "d.pdf", 2, "Meri"),
        ("Supa.", "d.pdf", 2, "Meri"),
    ]
    assert found[1].citation == 'd.pdf, page 2, "Meri"'
    assert found[1].place == {"file": "d.pdf", "page": 2, "heading": "Meri"}
    assert (Passage("p", "d", "", "x").citation, Passage("p", "d", "", "x").place) == ("d", {})


@pytest.mark.parametrize(
    ("passage", "label"),
    [
        (Passage("p", "d", "Pumps", "It may run dry.", heading="Valves"), "Pumps: Valves"),
        (Passage("p", "d", "Pumps", "It may run dry."), "Pumps"),
        (Passage("p", "d", "", "It may run dry.", heading="Valves"), "Valves"),
        (Passage("p", "d", "Pumps and Valves", "It may run dry.", heading="Valves"), "Pumps and Valves"),
        (Passage("p", "d", "Pumps", "## Valves\nIt may run dry.", heading="Valves"), "Pumps"),
        (Passage("p", "d", "Pumps", "- --dry\nIt may run dry.", heading="--dry"), "Pumps"),
        (Passage("p", "d/row 7", "Pumps", "It may run dry.", heading="row 7"), "Pumps"),
        (Passage("p", "d", "Pumps", "Dry.", heading="valve " * 40), f"Pumps: {'valve ' * 16}..."),
    ],
)
def test_a_passage_is_labelled_by_its_title_and_by_a_heading_that_says_more(passage: Passage, label: str) -> None:
    assert (passage.label, passage.contents) == (label, f"{label}\n{passage.text}")


def test_no_passage_goes_beyond_a_page() -> None:
    marks = [Mark(0, page=1), Mark(8, page=2), Mark(19, page=3)]
    assert sections("one two three four five", 100, *marks) == [
        ("one two", 1, None),
        ("three four", 2, None),
        ("five", 3, None),
    ]
    assert sections("one\n\n\n\nfour", 9, Mark(0, page=1), Mark(5, page=2), Mark(5, page=3)) == [
        ("one", 1, None),
        ("four", 3, None),
    ]


def test_no_passage_goes_beyond_a_heading_of_the_highest_level_of_which_there_are_several() -> None:
    text = "Before.\n# All\n## Pumps\nOne.\n### Limits\nTwo.\n## Valves\nThree."
    marks = marked(text, "# All", "## Pumps", "### Limits", "## Valves")
    assert sections(text, 100, *marks) == [
        ("Before.", None, None),
        ("# All\n## Pumps\nOne.\n### Limits\nTwo.", None, "Pumps"),
        ("## Valves\nThree.", None, "Valves"),
    ]


def test_a_heading_stays_with_the_text_under_it_and_passages_are_cut_before_headings_first() -> None:
    text = "## A\nIntroduction.\n\n### One\nx x.\n\nx x.\n\n### Two\ny y.\n\n## B\nz"
    marks = marked(text, "## A", "### One", "### Two", "## B")
    assert sections(text, 12, *marks) == [
        ("## A\nIntroduction.\n\n### One\nx x.\n\nx x.", None, "A"),
        ("### Two\ny y.", None, "Two"),
        ("## B\nz", None, "B"),
    ]
    assert [heading for *_, heading in sections(text, 6, *marks)] == ["A", "One", "Two", "B"]


def test_the_passages_of_a_long_section_all_have_its_heading() -> None:
    text = "# A\n" + "word. " * 30 + "\n# B\nend"
    found = sections(text, 10, *marked(text, "# A", "# B"))
    assert [heading for *_, heading in found] == ["A"] * 4 + ["B"]


def test_neither_a_heading_beside_another_nor_text_before_a_heading_is_under_it() -> None:
    text = "## A\n### One\nx.\n### Two\ny.\n## B\n### Three\nz."
    marks = marked(text, "## A", "### One", "### Two", "## B", "### Three")
    assert [heading for *_, heading in sections(text, 100, *marks)] == ["A", "Three"]
    text = "Before.\n### One\nx.\n## A\ny.\n## B\nz."
    marks = marked(text, "### One", "## A", "## B")
    assert [heading for *_, heading in sections(text, 100, *marks)] == [None, "A", "B"]
    rows = [Mark(0, heading="row 1"), *marks]  # which has no level: nothing is under it but its own text
    assert [heading for *_, heading in sections(text, 100, *rows)] == [None, "A", "B"]
    assert sections(text, 1, *rows)[0] == ("Before.", None, "row 1")


def test_terms_are_no_borders_of_sections_and_end_where_their_list_does() -> None:
    text = "# All\nOne.\nsize\nTwo.\nage\nThree.\nFour.\nFive."
    terms = [Mark(text.index(name), heading=name, level=TERM) for name in ("size", "age")]
    marks = [*marked(text, "# All"), *terms, Mark(text.index("Four"), heading="", level=TERM)]
    assert sections(text, 100, *marks) == [(text, None, "All")]
    found = sections(text, 3, *marks)
    assert [heading for *_, heading in found] == ["All", "size", "age", "All"]
    assert found[-1][0] == "Four.\nFive."


def test_a_page_that_begins_with_a_heading_still_begins_a_passage() -> None:
    text = "## A\none two\n\n### Low\nthree\n## B\nfour"
    low = text.index("### Low")
    first, heading, last = marked(text, "## A", "### Low", "## B")
    found = sections(text, 100, Mark(0, page=1), first, Mark(low, page=2), heading, last)
    assert [part for part, *_ in found] == ["## A\none two", "### Low\nthree", "## B\nfour"]


def test_headings_that_follow_one_another_are_not_cut_apart() -> None:
    text = "one two three.\n\n## A\n\n### Low\n\nfour five six"
    assert [part for part, *_ in sections(text, 7, *marked(text, "## A", "### Low"))] == [
        "one two three.",
        "## A\n\n### Low\n\nfour five six",
    ]
    assert [part for part, *_ in sections(text, 5, *marked(text, "## A", "### Low"))][1][:12] == "## A\n\n### Lo"


def test_a_border_in_the_second_half_comes_before_a_higher_one_in_the_first() -> None:
    assert texts("one two.\n\nthree four five six. seven eight nine", 8)[0].endswith("six.")
    text = "one.\n\n### Low\ntwo three. four five six seven\n## A\nx\n## B\ny"
    found = sections(text, 8, *marked(text, "### Low", "## A", "## B"))
    assert found[0][0].endswith("three.")
    text = "one two three four\n### Low\nfive.\n\nsix seven eight\n## A\nx\n## B\ny"
    assert sections(text, 8, *marked(text, "### Low", "## A", "## B"))[0][0] == "one two three four"
    assert texts("one.\n\ntwo. three four five six seven", 6)[0] == "one.\n\ntwo."


@given(st.lists(st.sampled_from(["# A\n", "## B\n", "### C\n", "Kalo is.\n", "\n", "Meri, too.\n\n"]), max_size=30))
def test_every_text_is_cited_under_a_heading_that_it_has(lines: list[str]) -> None:
    """The heading of a passage is one of those above each of its lines, and nothing is lost."""
    text, above, marks, under = "", [], [], {}
    for number, line in enumerate(lines):
        if line.startswith("#"):
            level, heading = line.count("#"), f"{line[-2]}{number}"
            above = [(each, name) for each, name in above if each < level] + [(level, heading)]
            marks.append(Mark(len(text), heading=heading, level=level))
        elif line.strip():
            under[len(text)] = [name for _, name in above]
        text += line
    passages = split_document(Document("d", "T", text, marks=tuple(marks)), max_words=8)
    assert "".join("".join(passage.text for passage in passages).split()) == "".join(text.split())
    for passage in passages:
        headings = [names for start, names in under.items() if passage.start <= start < passage.end]
        assert all(passage.heading in names if passage.heading else True for names in headings)


CELLS = st.text("ab. 12", max_size=12).map(str.strip)
TABLES = st.tuples(
    st.sampled_from(["", "Before it. All of it.\n\n", "# Pumps\n\n"]),
    st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=30),
    st.sampled_from(["|---|---|---|", "| --- | :---: | --- |", "|---+---+---|"]),
    st.sampled_from(["", "\n\nAfter it. All of it.", "\n\n| Other | Name |\n|---|---|\n| x | y |"]),
)
HEADINGS = "| Model | Maximum pressure | Note |"


@given(TABLES, st.integers(1, 40))
def test_every_passage_with_rows_has_their_headings_and_rows_that_fit_are_whole(
    table: tuple[str, list[tuple[str, str, str]], str, str], max_words: int
) -> None:
    before, cells, rule, after = table
    rows = [f"| {' | '.join(row)} |" for row in cells]
    text = "\n".join([f"{before}{HEADINGS}", rule, *rows]) + after
    passages = split_document(Document("d", "T", text), max_words=max_words)
    first = len(before) + len(HEADINGS) + len(rule) + 2
    end, last = 0, first + sum(len(row) + 1 for row in rows) - 1
    needed = count_words(f"{HEADINGS}\n{''.join(rule.split())}")
    for passage in passages:
        assert passage.own_text == text[passage.start : passage.end]
        assert text[end : passage.start].strip() == ""
        assert 1 <= count_words(passage.own_text) <= max_words
        assert count_words(passage.text) <= max_words + needed
        end = passage.end
        if first <= passage.start < last and needed <= max_words:
            assert passage.text == f"{HEADINGS}\n{''.join(rule.split())}\n{passage.own_text}"
        is_cut = passage.end < last and text[passage.end : passage.end + 1] != "\n"
        if first < passage.end and is_cut and passage.end < len(text):
            row = text.rindex("\n", 0, passage.end) + 1
            assert count_words(text[row:].split("\n")[0]) > max_words or passage.start > row
    assert text[end:].strip() == ""


@pytest.mark.parametrize(
    "text",
    [
        "a | b\nc | d\n" * 30,  # no rule
        "|  |  |\n|---|---|\n" + "| a | b |\n" * 30,  # empty headings
        "| a |\n---\n" + "| b |\n" * 30,
        "|---|---|\n|---|---|\n" * 30,
    ],
)
def test_what_is_no_table_with_headings_has_none_repeated(text: str) -> None:
    passages = split_document(Document("d", "T", text), max_words=20)
    assert len(passages) > 1
    assert all(passage.text == passage.own_text for passage in passages)


def test_a_table_that_fits_is_as_it_was() -> None:
    text = f"{HEADINGS}\n|---|---|---|\n| a | b | c |"
    assert texts(text, 100) == [text]


def test_sentences_within_cells_are_no_ends_of_passages() -> None:
    row = "| 1 | Close it. Wait for it. Open it. | Call them. Ask them. |\n"
    found = texts("| Step | What to do | If it fails |\n|---|---|---|\n" + row * 12, 50)
    assert len(found) > 3
    assert all(text.endswith("Ask them. |") and text.startswith("| Step |") for text in found)


def test_sentences_end_at_lines_and_full_stops_but_not_at_abbreviations() -> None:
    text = "1. Close it, e.g. by hand. It takes 2.5 hours.\nOpen it"
    found = ["1. Close it, e.g. by hand.", "It takes 2.5 hours.", "Open it"]
    assert [text[start:end] for start, end in sentences(text)] == found
    assert sentences(" ") == []
