import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.errors import ConfigError, TrainingError
from evoseek.reward.functions import (
    AnswerReward,
    FanOutReward,
    NamedReward,
    WebFormatReward,
    cited_f1,
    fan_out,
    lowest_of,
)
from evoseek.text.normalization import METRICS
from evoseek.text.scripts import without_citations
from evoseek.types import (
    Action,
    Invalid,
    Outcome,
    Passage,
    Question,
    Scored,
    Segment,
    StopReason,
    ToolCall,
    ToolResult,
    Trajectory,
)


def trajectory(answer: str | None) -> Trajectory:
    """A rollout whose prompt shows the example answer Paris, and whose last action does too."""
    return Trajectory(
        id="q1/0",
        question=Question("q1", "capital of France ? for example <answer> Paris </answer>", ("Paris",)),
        role="solver",
        segments=(Segment("prompt", (1,)), Segment("action", (2,), (-0.5,))),
        actions=(Action("Paris"),),
        tool_results=(),
        stop_reason=StopReason.MALFORMED if answer is None else StopReason.ANSWERED,
        answer=answer,
    )


@pytest.mark.parametrize(
    ("metric", "answer", "expected"),
    [
        ("exact_match", "paris", 1.0),
        ("exact_match", "in Paris", 0.0),
        ("guarded_substring_match", "in Paris", 1.0),
        ("f1", "in Paris", 2 / 3),
        ("exact_match", "", 0.0),
    ],
)
def test_the_reward_is_the_metric_of_the_answer(metric: str, answer: str, expected: float) -> None:
    outcome = asyncio.run(AnswerReward(metric)(trajectory(answer)))
    assert outcome == Scored(expected, {metric: expected})


def test_trap_no_answer_scores_zero_though_prompt_and_action_text_hold_the_gold() -> None:
    assert asyncio.run(AnswerReward("substring_match")(trajectory(None))) == Scored(0.0, {"substring_match": 0.0})


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    ("answer", "expected"), [("Not found in the documents.", 1.0), ("unknown", 1.0), ("Paris", 0.0), (None, 0.0)]
)
def test_of_an_unanswerable_question_a_refusal_is_right_by_every_metric(metric, answer, expected) -> None:
    """A rollout without an answer refuses nothing."""
    rolled = replace(trajectory(answer), question=Question("q1", "capital of France ?", (), {"answerable": False}))
    assert asyncio.run(AnswerReward(metric)(rolled)) == Scored(expected, {metric: expected})


def test_a_refusal_of_an_answerable_question_is_wrong() -> None:
    assert asyncio.run(AnswerReward("f1")(trajectory("Not found in the documents."))).reward == 0.0


async def length(given: Trajectory) -> int:
    return len(given.answer or "")


def named(reward: object) -> Outcome:
    return asyncio.run(NamedReward(reward, "own")(trajectory("Paris")))


@pytest.mark.parametrize(
    ("reward", "expected"),
    [
        (lambda given: 0.25, Scored(0.25, {"own": 0.25})),
        (lambda given: given.answer == "Paris", Scored(1.0, {"own": 1.0})),
        (length, Scored(5.0, {"own": 5.0})),
        (AnswerReward("exact_match"), Scored(1.0, {"exact_match": 1.0, "own": 1.0})),
        (lambda given: Scored(0.5, {"own": 1.0, "format": 0.0}), Scored(0.5, {"own": 1.0, "format": 0.0})),
        (lambda given: Invalid(StopReason.REWARD_FAILED, "down"), Invalid(StopReason.REWARD_FAILED, "down")),
    ],
    ids=["number", "truth", "coroutine", "another reward", "its own part", "invalid"],
)
def test_a_reward_of_ones_own_is_a_part_by_its_name(reward: object, expected: Outcome) -> None:
    assert named(reward) == expected


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, "1.0", Scored(float("nan"))], ids=repr)
def test_what_is_no_finite_number_is_an_error_with_the_rollout_and_never_a_reward(value: object) -> None:
    with pytest.raises(TrainingError, match=r"own gave .* for the rollout q1/0"):
        named(lambda given: value)


def test_a_reward_below_0_states_its_lowest_value() -> None:
    def penalty(given: Trajectory) -> float:
        return -1.0

    with pytest.raises(TrainingError, match=r"own gave -1 for the rollout q1/0, less than its `lowest`, 0\. Set"):
        named(penalty)
    vars(penalty)["lowest"] = -1.0
    assert named(penalty) == Scored(-1.0, {"own": -1.0})
    assert lowest_of(NamedReward(penalty, "own")) == lowest_of(WebFormatReward()) == -1.0
    assert lowest_of(AnswerReward()) == 0.0


@pytest.mark.parametrize("lowest", [float("nan"), float("-inf"), "-1", None], ids=repr)
def test_a_lowest_value_that_is_no_finite_number_is_refused_before_anything_is_scored(lowest: object) -> None:
    def penalty(given: Trajectory) -> float:
        return -1.0

    vars(penalty)["lowest"] = lowest
    with pytest.raises(ConfigError, match=rf"The reward penalty has `lowest` = {lowest!r}\. Expected .* such as -1\.0"):
        NamedReward(penalty, "own")


REFERENCE = ["Kalo", "Vesu", "1200", "yes"]


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("Kalo has 1,200 people.", 0.5),
        ("kalo: 1200, the Vesu: yes", 1.0),
        ("Kalos, 12000, Vesuvius, yesterday", 0.0),
        ("", 0.0),
    ],
)
def test_the_share_of_strings_by_hand(answer, value):
    assert fan_out(answer, REFERENCE) == value


def test_trap_a_string_that_normalises_to_nothing_is_not_in_everything():
    assert fan_out("Kalo", ["Kalo", "!"]) == 0.5
    assert fan_out("Kalo!", ["Kalo", "!"]) == 1.0


def test_numbers_of_a_reference_are_texts():
    question = Question("q", "how large?", ("2",), {"reference": [2, "x"]})
    trajectory = Trajectory("t", question, "solver", (), (), (), StopReason.ANSWERED, "it is 2")
    assert asyncio.run(FanOutReward()(trajectory)) == Scored(0.5, {"fan_out": 0.5})


@pytest.mark.parametrize(("answer", "value"), [("Kalo", 0.25), (None, 0.0)])
def test_the_reward_reads_the_reference_and_nothing_but_the_answer(answer, value):
    question = Question("q", "how large?", ("Kalo: 1200, Vesu: yes",), {"reference": REFERENCE})
    trajectory = Trajectory("t", question, "solver", (), (), (), StopReason.ANSWERED, answer)
    assert asyncio.run(FanOutReward()(trajectory)) == Scored(value, {"fan_out": value})


LOOKUP, ANSWER = "<think> first </think> <search> mayor </search>", "<answer> Meri </answer>"
BROKEN = Scored(-1.0, {"format": 0.0, "set_f1": 0.0})


def format_reward(*turns, answer="Meri", golden="Meri", stop=StopReason.ANSWERED):
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
    assert format_reward(LOOKUP, ANSWER, answer=answer, golden=golden) == Scored(
        pytest.approx(f1), {"format": 1.0, "set_f1": pytest.approx(f1)}
    )


@pytest.mark.parametrize(
    "turns",
    [
        (ANSWER,),
        (LOOKUP, "<browse>\nhttp://a.test/\nhttp://b.test/\n</browse>", f"<think> so </think>{ANSWER}<|im_end|>"),
        ('<think> a </think>\n<tool_call>\n{"name": "browse"}\n</tool_call><tool_call>{}</tool_call>', ANSWER),
        ("the template opened this </think> <search> a </search>", f"so </think> {ANSWER}"),
        ("1 < 2 <search> a </search>", f"<b>bold</b> {ANSWER}"),
    ],
)
def test_a_format_that_is_kept(turns):
    assert format_reward(*turns).reward == 1.0


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
        ("<answer> x", LOOKUP, ANSWER),
        ("<information> made up <search> a </search>", ANSWER),
        ("Meri",),  # in the tool-call format a turn without <answer> is read as the answer
        (LOOKUP, f"{ANSWER}</information>"),
    ],
)
def test_a_format_that_is_broken(turns):
    assert format_reward(*turns) == BROKEN


@pytest.mark.parametrize("answer", [None, "", " ", "?!"])
def test_no_answer_is_broken(answer):
    assert format_reward(LOOKUP, ANSWER, answer=answer) == BROKEN


@pytest.mark.parametrize("stop", [reason for reason in StopReason if not reason.is_failure])
def test_only_an_answer_is_no_broken_format(stop):
    expected = 1.0 if stop is StopReason.ANSWERED else -1.0
    assert (
        format_reward(LOOKUP, ANSWER, answer="Meri" if stop is StopReason.ANSWERED else None, stop=stop).reward
        == expected
    )


def test_a_turn_that_could_not_be_read_breaks_the_format_also_where_the_rollout_went_on():
    broken = Action("<tool_call>{</tool_call>", problem="the call is no JSON")
    question = Question("q", "who ?", ("Meri",))
    actions = (broken, Action(ANSWER, answer="Meri"))
    trajectory = Trajectory("q/0", question, "solver", (), actions, (), StopReason.ANSWERED, "Meri")
    assert asyncio.run(WebFormatReward()(trajectory)) == BROKEN


RED = Passage("a#0", "a", "Stopping", "To stop it, press the red key for three seconds. It is loud.")
GREEN = Passage("b#0", "b", "Starting", "Press the green key.")


def stopped(answer: str | None) -> Trajectory:
    """The golden answer has six words beside the article, and the first passage is the question's own."""
    metadata = {"support": ["To stop it, press the red key for three seconds."]}
    asked = Question("q", "how do I stop it?", ("Press the red key for three seconds.",), metadata)
    found = ToolResult(ToolCall("search", {}), "", (RED, GREEN))
    return Trajectory("t", asked, "solver", (), (), (), StopReason.ANSWERED, answer, opening=(found,))


@pytest.mark.parametrize(
    ("answer", "kept", "expected"),
    [
        ("Press the red key [1].", None, 2 * 3 / (3 + 6)),
        ("Press the red key.", None, 2 * 3 / (3 + 6) * 0.5),
        ("Press the red key [1][2].", None, 2 * 3 / (3 + 6) * 0.5),
        ("Press the red key [2].", None, 0.0),
        ("Press the red key [7].", None, 2 * 3 / (3 + 6) * 0.5),
        ("Press the red key [1]. It is loud.", "Press the red key.", 2 * 3 / (6 + 6)),
        ("Press the red key [1].", "", 0.0),
        ("Press the red key for three seconds [1].", None, 1.0),
        ("Loud. " * 12, None, 0.0),
        # Twice as long as the golden answer
        ("Press the red key for three seconds [1]. One two four five six seven.", None, 2 * 6 / (12 + 6) - 0.1),
    ],
)
def test_an_answer_of_sentences_is_worth_what_is_right_supported_and_cited(answer, kept, expected) -> None:
    assert cited_f1(stopped(answer), without_citations(answer) if kept is None else kept) == pytest.approx(expected)


def test_an_answer_is_not_too_long_that_is_no_longer_than_the_longest_golden_answer() -> None:
    answer = "Press the red key for three seconds [1]."
    rolled = stopped(answer)
    asked = replace(rolled.question, golden_answers=("Press it.", *rolled.question.golden_answers))
    assert cited_f1(replace(rolled, question=asked), without_citations(answer)) == 1.0


WRITTEN = st.lists(
    st.sampled_from(["press", "the", "red", "key", "for", "three", "seconds", "loud", "now"]), min_size=1, max_size=15
)


@given(WRITTEN, st.lists(st.sampled_from(["loud", "now", "x"]), min_size=1, max_size=20), st.sampled_from(["", " [1]"]))
def test_neither_padding_nor_wrong_citations_pay(words, padding, citation) -> None:
    answer = " ".join(words)
    value = cited_f1(stopped(answer + citation), answer)
    assert 0.0 <= value <= 1.0
    padded = " ".join([*words, *padding])
    assert cited_f1(stopped(padded + citation), padded) <= value
    assert cited_f1(stopped(f"{answer}{citation} [2]"), answer) <= value
