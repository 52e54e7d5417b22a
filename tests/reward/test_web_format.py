"""-1 for a broken format, else F1; each case by hand."""

import asyncio

import pytest

from evoseek.reward.web_format import WebFormatReward
from evoseek.types import Action, Question, Scored, StopReason, Trajectory

SEARCH, ANSWER = "<think> first </think> <search> mayor </search>", "<answer> Meri </answer>"
BROKEN = Scored(-1.0, {"format": 0.0, "set_f1": 0.0})


def score(*turns, answer="Meri", golden="Meri", stop=StopReason.ANSWERED):
    trajectory = Trajectory(
        id="q/0",
        question=Question("q", "who ?", (golden,)),
        role="solver",
        segments=(),
        actions=tuple(map(Action, turns)),
        tool_results=(),
        stop_reason=stop,
        answer=answer,
    )
    return asyncio.run(WebFormatReward()(trajectory))


@pytest.mark.parametrize(
    ("answer", "golden", "f1"),
    [
        ("Meri", "Meri", 1.0),
        ("Meri", "Tolu", 0.0),
        ("Meri Tolu", "Meri", 2 / 3),
        ("the  MERI!", "Meri", 2 / 3),  # articles stay
        ("The Rialto Bridge", "Rialto Bridge", 0.8),  # 2 of 3 and 2 of 2
        ("New York New York", "New York", 1.0),  # sets of words
        ("3.5", "35", 0.0),
        ("the", "Meri", 0.0),  # a word
    ],
)
def test_a_kept_format_is_worth_the_f1_of_the_answers_words_as_sets(answer, golden, f1):
    assert score(SEARCH, ANSWER, answer=answer, golden=golden) == Scored(
        pytest.approx(f1), {"format": 1.0, "set_f1": pytest.approx(f1)}
    )


@pytest.mark.parametrize(
    "turns",
    [
        (ANSWER,),
        (SEARCH, "<browse>\nhttp://a.test/\nhttp://b.test/\n</browse>", f"<think> so </think>{ANSWER}<|im_end|>"),
        ('<think> a </think>\n<tool_call>\n{"name": "browse"}\n</tool_call><tool_call>{}</tool_call>', ANSWER),
        ("the template opened this </think> <search> a </search>", f"so </think> {ANSWER}"),
        ("1 < 2 <search> a </search>", f"<b>bold</b> {ANSWER}"),
    ],
)
def test_a_format_that_is_kept(turns):
    assert score(*turns).reward == 1.0


@pytest.mark.parametrize(
    "turns",
    [
        (f"<think> first {ANSWER}",),
        (f"{ANSWER} </think>",),
        (f"<think> a <think> b </think> {ANSWER}",),
        (f"<think> a </think> </think> {ANSWER}",),
        (f"so </think> </think> {ANSWER}",),
        (f"<think> <answer> a </think> {ANSWER}",),
        (f"<search> a </browse> {ANSWER}",),
        (f"{ANSWER} {ANSWER}",),
        ("<answer> x", SEARCH, ANSWER),
        ("<information> made up <search> a </search>", ANSWER),
        ("Meri",),  # in the tool-call format a turn without <answer> is read as the answer
        (SEARCH, f"{ANSWER}</information>"),
    ],
)
def test_a_format_that_is_broken(turns):
    assert score(*turns) == BROKEN


@pytest.mark.parametrize("answer", [None, "", " ", "?!"])
def test_no_answer_is_broken(answer):
    assert score(SEARCH, ANSWER, answer=answer) == BROKEN


@pytest.mark.parametrize("stop", [reason for reason in StopReason if not reason.is_failure])
def test_only_an_answer_is_no_broken_format(stop):
    expected = 1.0 if stop is StopReason.ANSWERED else -1.0
    assert score(SEARCH, ANSWER, answer="Meri" if stop is StopReason.ANSWERED else None, stop=stop).reward == expected


def test_a_turn_that_could_not_be_read_breaks_the_format_also_where_the_rollout_went_on():
    broken = Action("<tool_call>{</tool_call>", problem="the call is no JSON")
    question = Question("q", "who ?", ("Meri",))
    actions = (broken, Action(ANSWER, answer="Meri"))
    trajectory = Trajectory("q/0", question, "solver", (), actions, (), StopReason.ANSWERED, "Meri")
    assert asyncio.run(WebFormatReward()(trajectory)) == BROKEN
