"""Sentences and searches in turns."""

import pytest

from evoseek.errors import CutReplyError
from evoseek.eval.baselines import ircot
from evoseek.types import Passage, StopReason

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
    assert [prompt.count(": x;") for _, (prompt,) in asked] == [3, 8, 13, ircot.MOST_PASSAGES]
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
    assert ircot.first_sentence(text, StopReason.MALFORMED) == sentence


def test_a_sentence_that_was_cut_is_none():
    assert ircot.first_sentence("Kalo is it. And then", StopReason.MAX_TOKENS) == "Kalo is it."
    assert ircot.first_sentence("Kalo is and then", StopReason.MAX_TOKENS) == ""
