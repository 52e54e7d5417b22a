from dataclasses import replace

import pytest

from evoseek.selfplay.filters import Rejection, RuleFilter, proposed_question
from evoseek.types import Action, Passage, Question, StopReason, ToolCall, ToolResult, Trajectory

QUESTION = "who is the mayor of Kalo ?"


def proposal(
    question: str | None = QUESTION, answer: str | None = "Meri", *queries: object, golden: tuple[str, ...] = ()
) -> Trajectory:
    calls = [ToolCall("search", {"query": query}) for query in queries]
    return Trajectory(
        id="step-1/proposals/t7",
        question=Question("t7", "the task", golden, {"requested": 2}),
        role="proposer",
        segments=(),
        actions=(*(Action("", (call,)) for call in calls), Action("", answer=answer, question=question)),
        tool_results=tuple(ToolResult(call, "") for call in calls),
        stop_reason=StopReason.MALFORMED if answer is None else StopReason.ANSWERED,
        answer=answer,
    )


STRICT = RuleFilter(min_words=4, min_characters=20, max_characters=40, require_search=True, repeated_queries=True)


def test_what_keeps_all_rules_is_accepted() -> None:
    assert STRICT(proposal(QUESTION, "Meri", "Kalo", "mayor of Kalo")) is None
    assert STRICT(proposal(QUESTION, "the Meri!", "Kalo", golden=("Jonas", "meri"))) is None
    assert RuleFilter()(proposal()) is None


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (proposal(QUESTION, None, "Kalo"), Rejection.UNFINISHED),
        (replace(proposal(QUESTION, "Meri", "Kalo"), stop_reason=StopReason.MAX_TURNS), Rejection.UNFINISHED),
        (proposal(None, "Meri", "Kalo"), Rejection.NO_QUESTION),
        (proposal(" \n", "Meri", "Kalo"), Rejection.NO_QUESTION),
        (proposal(QUESTION, "", "Kalo"), Rejection.NO_ANSWER),
        (proposal(QUESTION, "the ?!", "Kalo"), Rejection.NO_ANSWER),
        (proposal(QUESTION, f"<question> {QUESTION} </question>", "Kalo"), Rejection.NO_ANSWER),
        (proposal("who is theoretically", "Meri", "Kalo"), Rejection.TOO_SHORT),  # 3 words, 20 characters
        (proposal("who is in Kalooooo?", "Meri", "Kalo"), Rejection.TOO_SHORT),  # 4 words, 19 characters
        (proposal("who is it that is the mayor of all Kalo ?", "Meri", "Kalo"), Rejection.TOO_LONG),  # 41
        (proposal("is MERI the mayor of Kalo ?", "meri", "Kalo"), Rejection.ANSWER_IN_QUESTION),
        (proposal("who is the mayor of Meriton ?", "Meri", "Kalo"), Rejection.ANSWER_IN_QUESTION),
        (proposal(QUESTION, "Meri", "Kalo", golden=("Meri", "Kalo")), Rejection.ANSWER_IN_QUESTION),
        (proposal(QUESTION, "Meri"), Rejection.NO_SEARCH),
        (proposal(QUESTION, "Meri", " ", 7), Rejection.NO_SEARCH),  # no query, no search
        (proposal(QUESTION, "Meri", "Kalo", "x", "the KALO?"), Rejection.REPEATED_QUERY),
        (proposal(QUESTION, "Jonas", "Kalo", golden=("Meri",)), Rejection.OTHER_ANSWER),
    ],
)
def test_every_rule_has_its_reason(made: Trajectory, reason: Rejection) -> None:
    assert STRICT(made) is reason


@pytest.mark.parametrize(
    "question",
    [
        "who lives in Kaloo ?",  # exactly 20 characters
        "what is Kalo 's mayor 's old employer ??",  # exactly 40
        "who is that ooooooo?",  # exactly 4 words
    ],
)
def test_the_bounds_themselves_are_allowed(question: str) -> None:
    assert STRICT(proposal(question, "Meri", "Kalo")) is None


def test_switched_off_rules_reject_nothing() -> None:
    assert RuleFilter()(proposal(QUESTION, "Meri", "Kalo", "Kalo")) is None
    assert RuleFilter()(proposal(QUESTION, "Meri")) is None


def test_of_several_reasons_the_first_in_the_order_of_the_enumeration_counts() -> None:
    """A proposal with every fault is repaired one fault at a time: the reason moves on through the rules."""
    faulty = replace(proposal(None, None, golden=("Meri",)), stop_reason=StopReason.MAX_TURNS)
    repaired = [
        faulty,
        proposal(None, "", golden=("Meri",)),
        proposal("Meri ?", "", golden=("Meri",)),
        proposal("Meri ?", "Jonas", golden=("Meri",)),
        proposal(f"is it {'Meri ' * 10}?", "Jonas", golden=("Meri",)),
        proposal("is it not Meri there ?", "Jonas", golden=("Meri",)),
        proposal(QUESTION, "Jonas", golden=("Meri",)),
        proposal(QUESTION, "Jonas", "Kalo", "Kalo", golden=("Meri",)),
        proposal(QUESTION, "Jonas", "Kalo", golden=("Meri",)),
        proposal(QUESTION, "Meri", "Kalo", golden=("Meri",)),
    ]
    rules = list(Rejection)[: list(Rejection).index(Rejection.OTHER_ANSWER) + 1]
    assert [STRICT(made) for made in repaired] == [*rules, None]


def test_a_question_has_its_tasks_id_the_proposers_answer_and_where_it_came_from() -> None:
    evidence = [Passage("kalo#0", "kalo", "Kalo", "x"), Passage("meri#1", "meri", "Meri", "y")]
    made = proposal(f" {QUESTION}\n", " Meri ", "Kalo", "", "Meri")
    assert proposed_question(made, evidence) == Question(
        "t7", QUESTION, ("Meri",), {"requested": 2, "searches": 2, "evidence": ["kalo#0", "meri#1"]}
    )


def test_the_tasks_own_answer_is_the_right_one() -> None:
    made = proposal(QUESTION, "the Meri", "Kalo", golden=("Meri", "Meri of Kalo"))
    assert proposed_question(made, ()).golden_answers == ("Meri", "Meri of Kalo")
