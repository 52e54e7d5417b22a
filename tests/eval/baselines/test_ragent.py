"""Beginnings of passages, and those that are opened."""

from evoseek.types import StopReason

ANSWER = "<answer> Meri </answer>"


def test_results_are_numbered_through_the_rollout_and_opened_by_number(attempt, engine):
    replies = ["<search> Nida </search>", "<search> Kalo and Nida </search>", "<open> 3, 9, 2, 2 </open>", ANSWER]
    trajectory, asked = attempt("ragent", replies)
    assert engine.asked == [("Nida", 10), ("Kalo and Nida", 10)]
    assert asked[0] == ("q/0/turn-0", ["agent: who leads the capital of Nida ? 3 2"])
    assert [result.text for result in trajectory.tool_results] == [
        "1 Nida;", "2 Nida; 3 Kalo;", "3 Its mayor is Meri.; 2 Its capital is Kalo.;"
    ]  # fmt: skip
    assert [passage.id for passage in trajectory.tool_results[2].passages] == ["Kalo#0", "Nida#0"]
    assert (trajectory.stop_reason, trajectory.answer) == (StopReason.ANSWERED, "Meri")


def test_not_more_are_opened_than_a_search_would_show(attempt):
    trajectory, _ = attempt("ragent", ["<search> Kalo and Nida </search>"] * 2 + ["<open> 1 2 3 4 </open>", ANSWER])
    assert [passage.id for passage in trajectory.tool_results[2].passages] == ["Nida#0", "Kalo#0"]


def test_numbers_of_nothing_are_answered_in_words(attempt):
    replies = ["<open> 1 </open>", "<search> Kalo </search>", f"<open> {'7' * 5000} </open>", ANSWER]
    trajectory, _ = attempt("ragent", replies)
    texts = [result.text for result in trajectory.tool_results]
    assert texts[0] == 'The tool "open" takes the numbers of passages that were found (none yet: search first).'
    assert texts[2] == 'The tool "open" takes the numbers of passages that were found (1 to 1).'
    assert trajectory.answer == "Meri"


def test_opening_is_a_call(attempt):
    replies = ["<search> Kalo </search>", "<open> 1 </open>", "<open> 1 </open>", ANSWER]
    trajectory, _ = attempt("ragent", replies, max_tool_calls=2)
    assert (trajectory.stop_reason, len(trajectory.tool_results)) == (StopReason.MAX_TOOL_CALLS, 2)
