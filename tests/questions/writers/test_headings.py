"""Questions from headings, whose answers are sentences."""

import asyncio
from collections.abc import Sequence

import pytest

from evoseek.documents.passages import split_document
from evoseek.questions.writers.base import Draft
from evoseek.questions.writers.headings import HeadingsEn, Vocabulary, of_headings
from evoseek.questions.writers.rules_en.writer import RulesEn
from evoseek.types import Document, Mark, Passage

FILLER = (
    "Marlow is a program that stores boxes. To merge two boxes is safe. They name and list boxes, naming and listing "
    "them. An index lists boxes. You merge an old box by merging, and export boxes by exporting them. Boxes open fast, "
    "and opening them takes time. A box has a name, and a box has a colour. "
) * 3


def page(text: str, *, title: str = "Marlow", id: str = "marlow.html") -> list[Passage]:
    """The passages of a document, whose lines that begin with `# ` are headings, and `- ` terms."""
    marks, lines, place = list[Mark](), list[str](), 0
    for line in text.split("\n"):
        is_heading = line.startswith("# ")
        if is_heading or (line.startswith("- ") and len(line.split()) == 2):
            line = line.removeprefix("# ")
            marks.append(Mark(place, heading=line.removeprefix("- "), level=2))
        lines.append(line)
        place += len(line) + 1
    return split_document(Document(id, title, "\n".join(lines), marks=tuple(marks)))


def drafts(*documents: Sequence[Passage]) -> list[Draft]:
    all = [*documents, page(FILLER, title="About", id="about.html")]
    return list(of_headings(all, Vocabulary(all)))


def asked(heading: str, text: str) -> str | None:
    """The question of a section of a document about Marlow."""
    found = drafts(page(f"# {heading}\n{text}\n\n# Other\nNothing."))
    assert len(found) < 2
    return found[0].question if found else None


@pytest.mark.parametrize(
    ("heading", "text", "question"),
    [
        (
            "(2) What types of box are there?",
            "There are small boxes and large boxes in it.",
            "What types of box are there?",
        ),
        (
            "2.1. Merging two old boxes",
            "Use the command box-merge, with the names of two old boxes.",
            "How do I merge two old boxes?",
        ),
        (
            "How To Merge An Old Box",
            "An old box can be merged with the command box-merge, which takes its name.",
            "How do I merge an old box?",
        ),
        (
            "When to use covering boxes",
            "You should put things into boxes that have no other place.",
            "When should I use covering boxes in Marlow?",
        ),
        (
            "Naming boxes and exporting your names",
            "You can name boxes, and export their names with the command box-export.",
            "How do I name boxes and export my names?",
        ),
        (
            "The box_merge() function",
            "The box_merge(A, B) function returns a box with what is in A and B.",
            "What does the box_merge() function do?",
        ),
        ("box.color", "Sets the colour in which boxes are shown on a screen.", "What does box.color do?"),
        ("PRAGMA box", "List all the boxes of a database with their names.", "What does PRAGMA box do?"),
        ("OPEN BOX", "OPEN BOX opens a box, and locks it for others.", "What does OPEN BOX do?"),
        ("Covering Boxes", "A covering box is a box that is larger than others.", "What is a covering box?"),
        ("Box indexes", "Box indexes are the lists by which boxes are found.", "What are box indexes?"),
    ],
)
def test_a_heading_asks(heading: str, text: str, question: str):
    assert asked(heading, text) == question


@pytest.mark.parametrize(
    ("heading", "text"),
    [
        ("Merging two old boxes", "Two old boxes were found by some people in a cellar."),  # says not how
        ("Merging two old boxes", "Use box-merge on two old boxes alone: it is a bad idea, as people found."),
        ("Merging two old boxes", "Use the program that is described below for two old boxes."),
        ("Merging two old boxes", "- Use the command box-merge.\n- Give it the names."),  # a list
        ("Merging two old boxes", "$ box-merge --all one two; ls"),
        ("Merging two old boxes", "Use: box-merge"),
        ("Exporting of boxes", "You can export boxes with the command box-export."),
        ("Merging two old boxes, part two", "You can merge two old boxes with the command box-merge."),
        ("Limits of boxes", "You can put a hundred things into a box at most."),  # asks nothing
        ("What next?", "You can read the other pages of this manual now."),
        ("box.color", "There are four colours, and red is the first one."),  # says not what it does
        ("Covering boxes", "Some boxes are covered with paper by their owners."),
        ("box.color", "Sets colours."),  # too short
    ],
)
def test_what_asks_or_answers_nothing_gives_no_question(heading: str, text: str):
    assert asked(heading, text) is None


def test_an_adjective_is_no_action():
    text = "A covering box is large. Use a covering box with other boxes, and you can see it."
    assert asked("Covering boxes of wood", text) is None


def test_the_answer_is_the_sentences_that_open_the_section_as_they_stand():
    text = (
        "Sets the colour in which boxes\nare shown on a screen. Red is usual.\nIt may be left out.\n"
        "- red\n- green\nMore is said elsewhere about this."
    )
    (draft,) = drafts(page(f"# box.color\n{text}\n"))
    sentences = (
        "Sets the colour in which boxes are shown on a screen.",
        "Red is usual.",
        "It may be left out.",
    )
    assert draft.support == (sentences[0],)  # a sentence of two words is none
    long = text.replace("Red is usual.", "Red is usual for all of them.")
    (draft,) = drafts(page(f"# box.color\n{long}\n"))
    assert draft.support == (sentences[0], "Red is usual for all of them.", sentences[2])
    assert (draft.answer, draft.kind) == (" ".join(draft.support), "does")
    assert draft.evidence == ("marlow.html#0",)


def test_at_most_four_sentences_answer_all_of_one_passage():
    sentence = "Sets the colour in which boxes are shown."
    (draft,) = drafts(page(f"# box.color\n{' '.join([sentence] * 6)}"))
    assert draft.support == (sentence,) * 4
    passages = page(f"# box.color\n{sentence} {'Nothing more is said of boxes here. ' * 0}{sentence}")
    first, second = passages[0].text[: -len(sentence)], sentence
    parted = [
        Passage("m#0", "m", "Marlow", first, 0, len(first), heading="box.color"),
        Passage("m#1", "m", "Marlow", second, len(first), len(first) + len(second), heading="box.color"),
    ]
    (draft,) = drafts(parted)
    assert (draft.support, draft.evidence) == ((sentence,), ("m#0",))


def test_an_option_and_what_two_documents_have_is_asked_with_the_documents_name():
    text = "Sets the colour in which boxes are shown on a screen."
    one, other = (
        page(f"# {heading}\n{said}", title=title, id=f"{title}.html")
        for heading, said, title in (("box.color", text, "box-list(1)"), ("box.color", f"{text} Red.", "box-show(1)"))
    )
    assert [draft.question for draft in drafts(one)] == ["What does box.color do?"]
    both = drafts(one, page("# box.color\nSets the colour of one box only, if any.", title="box-show(1)", id="s"))
    assert [draft.question for draft in both] == [
        "What does box.color do in box-list?",
        "What does box.color do in box-show?",
    ]
    assert len(drafts(one, other)) == 1  # the same sentences, asked once
    option = page(f"Words first.\n- --all\n{text}", title="box-list(1)")
    assert [draft.question for draft in drafts(option)] == ["What does the option --all do in box-list?"]


def test_what_three_sections_are_called_says_nothing():
    same = [
        page(f"# Box notes\nBox notes are the notes of box {name}, as people know.", title=f"Box {name}", id=name)
        for name in ("one", "two", "three")
    ]
    assert len(drafts(*same[:2])) == 2
    assert drafts(*same) == []


def test_a_description_is_of_what_its_document_is_about():
    passages = page("# DESCRIPTION\nOpens boxes, and shows on a screen what is in them.", title="box-show(1)")
    assert [draft.question for draft in drafts(passages)] == []  # `box-show` is spelled as words are
    passages = page(
        "# Overview\nbox_show opens boxes, and shows what is in them.".replace("box_s", "Box_s"), title="Box_show"
    )
    assert [draft.question for draft in drafts(passages)] == ["What does Box_show do?"]


def test_other_languages_give_nothing():
    text = "# box.color\nDas ist die Farbe, in der die Kisten auf dem Schirm und auch sonst zu sehen sind."
    assert drafts(page(text)) == []


@pytest.mark.parametrize("number", ["", "5.6. "])
def test_near_misses_name_another_document(number: str):
    """The question leaves out the number of the title; the search for its pages does not."""
    text = "Sets the colour in which boxes are shown on a screen."
    documents = [
        page(f"Words first.\n- --{name}\n{text} It is {name}.", title=f"{number}box-{name}(1)", id=f"{name}.html")
        for name in ("list", "show", "pack")
    ]
    made = asyncio.run(HeadingsEn().write(documents, 10))
    missed = [draft for draft in made if not draft.answer]
    assert missed
    for draft in missed:
        option, name = draft.question.split()[4], draft.hops[0].query.removeprefix(number)
        assert draft.hops[0].query == f"{number}{name}"
        assert draft.question == f"What does the option {option} do in {name}?"
        assert name in {"box-list", "box-show", "box-pack"} - {f"box-{option[2:]}"}
        assert draft.evidence[0].startswith(option[2:])
    assert made == asyncio.run(HeadingsEn().write(documents, 10))


def test_nothing_is_asked_of_notes_of_changes():
    text = "Merge the boxes of Marlow with those of Oro. Merged the boxes of Marlow with those of Brill."
    said = "The boxes of Marlow are kept beside those of Tarn."
    documents = [page(f"{text} {said}"), page(f"{FILLER} It merges boxes.", title="About", id="about.html")]

    def asked(writer: RulesEn | HeadingsEn) -> set[str]:
        drafts = asyncio.run(writer.write(documents, 10))
        return {draft.question for draft in drafts if draft.answer in ("Oro", "Brill", "Tarn")}

    kept = {"The boxes of Marlow are kept beside those of what?"}
    assert asked(RulesEn()) == kept | {
        "Merge the boxes of Marlow with those of what?",
        "Merged the boxes of Marlow with those of what?",
    }
    assert asked(HeadingsEn()) == kept
