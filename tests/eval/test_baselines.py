"""The baselines, prompt by prompt."""

import pytest

from evoseek.errors import CutReplyError, ToolError
from evoseek.eval import baselines
from evoseek.types import Passage, StopReason, ToolCall


def test_the_question_is_searched_once_and_its_passages_are_shown(attempt, engine):
    trajectory, asked = attempt("rag", ["<answer> Meri </answer>"])
    question = "who leads the capital of Nida ?"
    assert engine.asked == [(question, 2)]
    assert asked == [("q/0/turn-0", [f"rag: {question} Nida: Its capital is Kalo.; "])]
    assert [result.call for result in trajectory.tool_results] == [ToolCall("search", {"query": question})]
    assert [passage.id for passage in trajectory.tool_results[0].passages] == ["Nida#0"]


def test_no_call_is_made_that_the_limits_do_not_allow(attempt, engine):
    _, asked = attempt("rag", ["<answer> Meri </answer>"], max_tool_calls=0)
    assert (engine.asked, asked[0][1]) == ([], ["rag: who leads the capital of Nida ? nothing"])


QUESTION = "who leads the capital of Nida ?"
ANSWER = "<answer> Meri </answer>"


def test_each_sentence_is_the_next_query(attempt, engine):
    trajectory, asked = attempt("ircot", ["The capital is Kalo. It has a mayor.", ANSWER])
    assert engine.asked == [(QUESTION, 2), ("The capital is Kalo.", 2)]
    assert asked == [
        ("q/0/step-0/turn-0", [f"next: {QUESTION} Nida: Its capital is Kalo.;  "]),
        (
            "q/0/step-1/turn-0",
            [f"next: {QUESTION} Nida: Its capital is Kalo.; Kalo: Its mayor is Meri.;  The capital is Kalo."],
        ),
    ]
    assert (trajectory.stop_reason, trajectory.answer) == (StopReason.ANSWERED, "Meri")
    assert len(trajectory.tool_results) == len(trajectory.actions) == 2


@pytest.mark.parametrize(("turns", "calls", "searches"), [(4, 2, 2), (3, 9, 2), (9, 1, 1), (2, 0, 0)])
def test_without_calls_left_it_has_to_answer(attempt, engine, turns, calls, searches):
    thoughts = ["Kalo is it."] * searches
    trajectory, asked = attempt("ircot", [*thoughts, ANSWER], max_turns=turns, max_tool_calls=calls)
    assert (len(engine.asked), len(asked), trajectory.answer) == (searches, searches + 1, "Meri")
    shown = {0: "nothing", 1: "Nida: Its capital is Kalo.; "}.get(
        searches, "Nida: Its capital is Kalo.; Kalo: Its mayor is Meri.; "
    )
    assert asked[-1] == ("q/0/turn-0", [f"end: {QUESTION} {shown} {' / '.join(thoughts)}"])


def test_a_passage_is_shown_once_and_no_more_than_fifteen(attempt, engine):
    async def counted(queries, k):
        numbers = [int(word) for word in queries[0].split() if word.isdigit()]
        return [[Passage(f"{n}#0", f"{n}", f"t{n}", "x") for n in range(*(numbers or [3]))]]

    engine.search = counted
    replies = ["from 1 to 8", "from 5 to 13", "from 12 to 20", ANSWER]
    _, asked = attempt("ircot", replies, top_k=9, max_turns=9, max_tool_calls=8)
    assert [prompt.count(": x;") for _, (prompt,) in asked] == [3, 8, 13, baselines.MOST_PASSAGES]
    assert "t14: x;" in asked[3][1][0]
    assert "t15" not in asked[3][1][0]


def test_endless_thought_on_the_way_ends_it(attempt, engine):
    trajectory, _ = attempt("ircot", ["Kalo is it.", CutReplyError("it was cut")])
    assert (trajectory.stop_reason, trajectory.answer, len(engine.asked)) == (StopReason.MAX_TOKENS, None, 2)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Kalo is it. Then more.", "Kalo is it."),
        ("Kalo is it", "Kalo is it"),
        ("Dr. J. R. Meri leads Kalo. She does.", "Dr. J. R. Meri leads Kalo."),
        ("首都はカロです。次。", "首都はカロです。"),
        ("First line\nsecond", "First line"),
        ("It has 3.5 million people. Yes.", "It has 3.5 million people."),
        ("<think> long. thought. </think> Kalo is it. So", "Kalo is it."),
        ("<think> Kalo is it. More. </think>", "Kalo is it."),
        ("<search> Kalo </search><|im_end|>", "Kalo"),
        ("<search></search>", ""),
        (" \n ", ""),
    ],
)
def test_the_first_sentence(text, sentence):
    assert baselines.first_sentence(text, StopReason.MALFORMED) == sentence


def test_a_sentence_that_was_cut_is_none():
    assert baselines.first_sentence("Kalo is it. And then", StopReason.MAX_TOKENS) == "Kalo is it."
    assert baselines.first_sentence("Kalo is and then", StopReason.MAX_TOKENS) == ""


SEARCH, SEARCH_O1_ANSWER = "<think> hm </think> <search> Nida </search>", "<answer> Meri </answer>"


def test_the_chain_is_shown_what_reading_gave(attempt, engine):
    trajectory, asked = attempt("search-o1", [SEARCH, "<answer> The capital is Kalo. </answer>", SEARCH_O1_ANSWER])
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
    assert trajectory.actions[-1].text == SEARCH_O1_ANSWER


def test_reading_that_gives_nothing_says_so_and_nothing_found_is_not_read(attempt):
    replies = [SEARCH, "no tags", SEARCH, CutReplyError("it was cut"), "<search> Vesu </search>", SEARCH_O1_ANSWER]
    trajectory, _ = attempt("search-o1", replies)
    assert [result.text for result in trajectory.tool_results] == ["no help", "no help", "nothing"]
    assert trajectory.answer == "Meri"


def test_the_reasoning_shown_is_all_of_the_chain_so_far(attempt):
    second = "<think> so </think> <search> Kalo </search>"
    _, asked = attempt("search-o1", [SEARCH, "<answer> a </answer>", second, "<answer> b </answer>", SEARCH_O1_ANSWER])
    assert asked[3][1] == [f"read: {QUESTION} | {SEARCH}\n{second} | Kalo | Kalo: Its mayor is Meri.; "]


def test_reading_that_fails_is_invalid(attempt):
    trajectory, _ = attempt("search-o1", [SEARCH, ToolError("the endpoint is down")])
    assert (trajectory.stop_reason, trajectory.answer) == (StopReason.TOOL_FAILED, None)
    assert "the endpoint is down" in trajectory.failure


def test_the_limit_of_calls_holds(attempt, engine):
    replies = [SEARCH, "<answer> a </answer>", SEARCH, SEARCH_O1_ANSWER]
    trajectory, _ = attempt("search-o1", replies, max_tool_calls=1)
    assert (trajectory.stop_reason, len(engine.asked)) == (StopReason.MAX_TOOL_CALLS, 1)


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
