"""What an answer rests on, in words."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from evoseek.agent.bound import Bound
from evoseek.agent.shown import Answered, citations, merged
from evoseek.agent.support import support_of
from evoseek.text.printable import say
from evoseek.types import Passage, Question, StopReason, ToolCall, ToolResult, Trajectory

FOUND = (Passage("a#0", "a", "Kalo", "Its mayor is MERI .", 3, 22, 1.5), Passage("b#0", "b", "Vesu", "It has Tor ."))


def answered(answer, found=FOUND, question="?"):
    result = ToolResult(ToolCall("search", {"query": "mayor"}), "", found)
    return Trajectory("t", Question("q", question, ()), "solver", (), (), (result,), StopReason.ANSWERED, answer)


def test_only_passages_that_contain_the_words_are_named_as_such():
    trajectory = answered("Meri")
    searches, support = Answered(trajectory, support_of(trajectory), refuses=True).text.plain.split(
        "Passages about the question that contain these words (no more was checked): Meri\n"
    )
    assert "1. search: mayor  ->  Kalo, Vesu" in searches
    assert "[a#0] Kalo: Its mayor is MERI ." in support
    assert "Vesu" not in support


def test_the_certainty_of_an_answer_that_is_shown_is_said():
    told = {"refuses": True, "certainty": 0.927}
    right, wrong = answered("Meri"), answered("Lina")
    assert Answered(right, support_of(right), **told).text.plain.startswith(
        "Answer: Meri  (sure 0.93: the probability that the model gives its words)\n"
    )
    assert Answered(right, support_of(right), **told).json["certainty"] == 0.927
    assert "sure" not in Answered(wrong, support_of(wrong), **told).text.plain
    assert Answered(wrong, support_of(wrong), **told).json["certainty"] is None
    assert Answered(right, support_of(right), refuses=True).text.plain.startswith("Answer: Meri\n")


def test_the_support_of_an_answer_is_cited():
    found = Passage("a.pdf#0", "a.pdf", "Kalo", "Its mayor is Meri.", 7, 25, file="a.pdf", page=3)
    trajectory = answered("Meri", (found,))
    assert "from a.pdf, page 3" in Answered(trajectory, support_of(trajectory), refuses=True).text.plain
    assert Answered(trajectory, support_of(trajectory), refuses=True).json["support"] == [
        {"id": "a.pdf#0", "title": "Kalo", "text": "Its mayor is Meri.", "file": "a.pdf", "page": 3}
        | {"label": "Kalo, page 3", "numbers": [1], "spans": [[13, 17]], "title_spans": []}
    ]


def test_the_words_of_the_answer_are_marked_where_they_stand():
    """In two passages of one place, and in a title; and on a terminal, where control characters are replaced."""
    found = tuple(
        Passage(f"a#{n}", "a", "Meri Tolu", text, 10 * n, file="a.md")
        for n, text in enumerate(("She is \x1b old.", "Her name is MERI  Tolu."))
    )
    trajectory = answered("It is meri tolu.", found, "Who was the first mayor?")
    told = Answered(trajectory, support_of(trajectory), refuses=True).json
    (source,) = told["support"]
    assert [source["text"][start:end] for start, end in source["spans"]] == ["MERI  Tolu"]
    assert (told["words"], source["title_spans"]) == (["meri tolu"], [[0, 9]])
    console = Console(force_terminal=True, width=200, file=StringIO(), color_system="standard")
    say(console, Answered(trajectory, support_of(trajectory), refuses=True).text)
    printed = console.file.getvalue()
    assert "\x1b[1;4mMeri Tolu\x1b[0m: She is \N{REPLACEMENT CHARACTER} old." in printed
    assert "Her name is \x1b[1;4mMERI  Tolu\x1b[0m." in printed


def test_passages_at_one_place_are_one_source_and_labels_differ():
    def passage(number, start, document="a.pdf", **place):
        place = {"file": document} | place
        return Passage(f"{document}#{number}", document, "Kalo", f"Text {number}.", start, start + 7, **place)

    found = [
        passage(2, 20, page=1),
        passage(1, 10, page=1),
        passage(3, 30, page=2),
        passage(4, 40, "b.md", heading="Kalo"),
        passage(5, 50, "c.txt"),
        passage(6, 60, "d", file="e.jsonl"),
        passage(7, 70, "f", file="e.jsonl"),
    ]
    told = citations(merged(found))
    assert [(source["label"], source["text"]) for source in told] == [
        ("Kalo, page 1", "Text 1.\n\nText 2."),
        ("Kalo, page 2", "Text 3."),
        ("Kalo (b.md)", "Text 4."),
        ("Kalo (c.txt)", "Text 5."),
        ("Kalo (e.jsonl) (d#6)", "Text 6."),
        ("Kalo (e.jsonl) (f#7)", "Text 7."),
    ]
    assert told[0]["id"] == "a.pdf#2"


@pytest.mark.parametrize(("refuses", "heading"), [(True, "Not found in the documents."), (False, "Answer: Lina")])
def test_an_answer_that_nothing_supports_is_refused_or_marked(refuses, heading):
    trajectory = answered("Lina")
    text = Answered(trajectory, support_of(trajectory), refuses=refuses).text.plain
    assert text.startswith(heading)
    assert ("Lina" in text) is not refuses
    assert text.endswith("add --set support.unsupported=show" if refuses else "  none")
    as_json = Answered(trajectory, support_of(trajectory), refuses=refuses).json
    assert (as_json["answer"], as_json["supported"], as_json["support"]) == (None if refuses else "Lina", False, [])


SEVERAL = (
    Passage("a#0", "a", "Pump", "To stop the pump, press the red key. It is loud.", 0, 47, file="a.md"),
    Passage("b#0", "b", "Vane", "Oil its bearing each spring.", 0, 28, file="b.md"),
)


def test_unsupported_sentences_are_left_out_and_the_others_cite_their_passages():
    trajectory = answered(
        "Press the red key. Ask Ada Birk for help!\nOil its bearing each spring [2].",
        SEVERAL,
        "How do I stop the pump?",
    )
    found = Answered(trajectory, support_of(trajectory), refuses=True)
    assert found.answer == "Press the red key [1].\nOil its bearing each spring [2]."
    assert "\n(1 of 3 sentences are left out, which no passage supports.)\n" in found.text.plain
    assert "\n  [1] [a#0] Pump: " in found.text.plain
    assert "\n  [2] [b#0] Vane: " in found.text.plain
    assert found.json["sentences"] == [
        {"text": "Press the red key.", "citations": [1], "supported": True},
        {"text": "Ask Ada Birk for help!", "citations": [], "supported": False},
        {"text": "Oil its bearing each spring.", "citations": [2], "supported": True},
    ]
    assert [(one["id"], one["numbers"]) for one in found.json["support"]] == [("a#0", [1]), ("b#0", [2])]
    everything = Answered(trajectory, support_of(trajectory), refuses=False).answer
    assert everything == "Press the red key [1]. Ask Ada Birk for help!\nOil its bearing each spring [2]."


def test_a_short_answer_has_a_citation_only_if_it_was_written():
    bare, cited = answered("Meri"), answered("Meri [1]")
    wrong = answered("Meri [2]")
    shown = [Answered(one, support_of(one), refuses=True).answer for one in (bare, cited, wrong)]
    assert shown == ["Meri", "Meri [1]", "Meri [1]"]


def test_a_refusal_names_the_nearest_documents_and_the_words_that_none_has():
    """Plural and case do not matter, and a document is named once."""
    found = (*FOUND, Passage("a#1", "a", "Kalo", "More of Kalo."))
    trajectory = answered("Lina", found, "Who pays the mayors of kalo in Guilders?")
    refused = Answered(trajectory, support_of(trajectory), refuses=True)
    said = "Not found in the documents. Nearest: Kalo; Vesu. None of what was found mentions: pays, Guilders."
    assert refused.text.plain.startswith(f"{said}\n")
    assert (refused.answer, refused.json["nearest"]) == (None, ["Kalo", "Vesu"])
    empty = answered("Lina", (), "Who?")
    assert Answered(empty, support_of(empty), refuses=True).refusal == "Not found in the documents."
    right = answered("Meri")
    assert Answered(right, support_of(right), refuses=True).json["nearest"] == []


def test_an_answer_that_is_not_certain_enough_is_refused_and_why_is_said():
    """The bound is open below: an answer of the same certainty is not shown, nor one of an unknown certainty."""
    bound, trajectory = Bound(0.05, 0.95, 0.9, 60, 0, 100), answered("Meri")
    options = {"support": support_of(trajectory), "refuses": True, "bound": bound}
    assert Answered(trajectory, certainty=0.91, **options).answer == "Meri"
    for certainty in (0.9, None):
        unsure = Answered(trajectory, certainty=certainty, **options)
        assert (unsure.answer, unsure.json["certainty"], unsure.json["supported"]) == (None, None, True)
        assert unsure.text.plain.endswith(
            "The model is not sure of what it answered. Answers more certain than 0.900 are shown: at most 5% of them "
            "are wrong, with 95% confidence, for questions like the 100 on which it was set. To see it, add --set "
            "support.bound="
        )
    assert Answered(trajectory, **{**options, "refuses": False}).answer == "Meri"
    assert Answered(trajectory, **{**options, "bound": replace(bound, above=None)}).answer == "Meri"
