"""The demonstrations of bench/contexts.py."""

from evoseek.types import Question, ToolCall

CHAIN = [["Kalo", "mayor", "Meri"], ["Meri", "spouse", "Tolu"], ["Tolu", "employer", "Vesu"]]
ASKED = Question("q", "what is Kalo's mayor's spouse's employer?", ("Vesu",), {"chain": CHAIN})


def test_each_note_is_what_is_left_of_the_question(script):
    turns = list(script("contexts").turns(ASKED, notes=True))
    assert turns == [
        ("", ToolCall("search", {"query": "Kalo's mayor"})),
        ("Kalo's mayor is Meri.", ToolCall("note", {"text": "Meri's spouse's employer"})),
        ("", ToolCall("search", {"query": "Meri's spouse"})),
        ("Meri's spouse is Tolu.", ToolCall("note", {"text": "Tolu's employer"})),
        ("", ToolCall("search", {"query": "Tolu's employer"})),
        ("Tolu's employer is Vesu.", "Vesu"),
    ]
    assert [ending for _, ending in script("contexts").turns(ASKED, notes=False)] == [turns[n][1] for n in (0, 2, 4, 5)]
