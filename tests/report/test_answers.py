"""What an answer rests on, in words."""

from evoseek.report.answers import answer_json, answer_text
from evoseek.types import Passage, Question, StopReason, ToolCall, ToolResult, Trajectory


def test_only_passages_that_hold_the_answer_are_named_as_such():
    found = (Passage("a#0", "a", "Kalo", "Its mayor is MERI ."), Passage("b#0", "b", "Vesu", "Its mayor is Tor ."))
    result = ToolResult(ToolCall("search", {"query": "mayor"}), "", found)
    trajectory = Trajectory("t", Question("q", "?", ()), "solver", (), (), (result,), StopReason.ANSWERED, "Meri")
    searches, support = answer_text(trajectory).split("Passages that hold the answer:")
    assert "1. search: mayor  ->  Kalo, Vesu" in searches
    assert "[a#0] Kalo: Its mayor is MERI ." in support
    assert "Vesu" not in support


def test_the_support_of_an_answer_is_cited():
    found = Passage("a.pdf#0", "a.pdf", "Kalo", "Its mayor is Meri.", 7, 25, file="a.pdf", page=3)
    result = ToolResult(ToolCall("search", {"query": "mayor"}), "", (found,))
    trajectory = Trajectory("t", Question("q", "?", ()), "solver", (), (), (result,), StopReason.ANSWERED, "Meri")
    assert "from a.pdf, page 3, characters 7-25" in answer_text(trajectory)
    assert answer_json(trajectory)["support"] == [
        {"id": "a.pdf#0", "title": "Kalo", "text": "Its mayor is Meri.", "file": "a.pdf", "page": 3}
        | {"start": 7, "end": 25}
    ]
