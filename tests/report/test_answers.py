"""What an answer rests on, in words."""

from evoseek.report.answers import answer_text
from evoseek.types import Passage, Question, StopReason, ToolCall, ToolResult, Trajectory


def test_only_passages_that_hold_the_answer_are_named_as_such():
    found = (Passage("a#0", "a", "Kalo", "Its mayor is MERI ."), Passage("b#0", "b", "Vesu", "Its mayor is Tor ."))
    result = ToolResult(ToolCall("search", {"query": "mayor"}), "", found)
    trajectory = Trajectory("t", Question("q", "?", ()), "solver", (), (), (result,), StopReason.ANSWERED, "Meri")
    searches, support = answer_text(trajectory).split("Passages that hold the answer:")
    assert "1. search: mayor  ->  Kalo, Vesu" in searches
    assert "[a#0] Kalo: Its mayor is MERI ." in support
    assert "Vesu" not in support
