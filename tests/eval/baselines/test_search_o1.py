"""What is found is read apart from the chain."""

from evoseek.errors import CutReplyError, ToolError
from evoseek.types import StopReason

QUESTION = "who leads the capital of Nida ?"
SEARCH, ANSWER = "<think> hm </think> <search> Nida </search>", "<answer> Meri </answer>"


def test_the_chain_is_shown_what_reading_gave(attempt, engine):
    trajectory, asked = attempt("search-o1", [SEARCH, "<answer> The capital is Kalo. </answer>", ANSWER])
    assert engine.asked == [("Nida", 2)]
    chain = f"chain: {QUESTION} 3"
    assert asked == [
        ("q/0/turn-0", [chain]),
        ("q/0/reading-0/turn-0", [f"read: {QUESTION} | {SEARCH} | Nida | Nida: Its capital is Kalo.; "]),
        ("q/0/turn-1", [chain, SEARCH, "<information>\nThe capital is Kalo.\n</information>"]),
    ]
    assert (trajectory.answer, trajectory.tool_results[0].text) == ("Meri", "The capital is Kalo.")
    assert [passage.id for passage in trajectory.tool_results[0].passages] == ["Nida#0"]
    assert len(trajectory.actions) == 3
    assert trajectory.actions[-1].text == ANSWER


def test_reading_that_gives_nothing_says_so_and_nothing_found_is_not_read(attempt):
    replies = [SEARCH, "no tags", SEARCH, CutReplyError("it was cut"), "<search> Vesu </search>", ANSWER]
    trajectory, _ = attempt("search-o1", replies)
    assert [result.text for result in trajectory.tool_results] == ["no help", "no help", "nothing"]
    assert trajectory.answer == "Meri"


def test_the_reasoning_shown_is_all_of_the_chain_so_far(attempt):
    second = "<think> so </think> <search> Kalo </search>"
    _, asked = attempt("search-o1", [SEARCH, "<answer> a </answer>", second, "<answer> b </answer>", ANSWER])
    assert asked[3][1] == [f"read: {QUESTION} | {SEARCH}\n{second} | Kalo | Kalo: Its mayor is Meri.; "]


def test_reading_that_fails_is_invalid(attempt):
    trajectory, _ = attempt("search-o1", [SEARCH, ToolError("the endpoint is down")])
    assert (trajectory.stop_reason, trajectory.answer) == (StopReason.TOOL_FAILED, None)
    assert "the endpoint is down" in trajectory.failure


def test_the_limit_of_calls_holds(attempt, engine):
    replies = [SEARCH, "<answer> a </answer>", SEARCH, ANSWER]
    trajectory, _ = attempt("search-o1", replies, max_tool_calls=1)
    assert (trajectory.stop_reason, len(engine.asked)) == (StopReason.MAX_TOOL_CALLS, 1)
