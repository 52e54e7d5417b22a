"""The format reward of proposals; each case is worked out by hand."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.errors import DataError
from evoseek.selfplay.filters import is_valid_search, stands_in, stated
from evoseek.selfplay.proposer_reward import FormatScore, format_score
from evoseek.text.normalization import normalise
from evoseek.types import Action, Passage, ProposerTask, Question, StopReason, ToolCall, ToolResult, Trajectory

SOURCE = Passage("kalo#0", "kalo", "Kalo", "Kalo's mayor is Meri. Kalo is a city of C miners by the Long Blue Lake.")
MERI = Passage("meri#0", "meri", "Meri", "Meri's employer is the Bank of Tolu, founded in 1971.")
SEARCH = ToolCall("search", {"query": "Meri"})
LAST = "<think> done </think>"


def proposal(
    question: str | None,
    answer: str | None,
    *,
    hops: int = 1,
    calls: tuple[ToolCall, ...] = (),
    thoughts: tuple[str, ...] | None = None,
    shown: bool = True,
) -> Trajectory:
    """A proposal from SOURCE: a turn for each call, then the last; `thoughts` open them. Searches find MERI."""
    opened = thoughts or ("<think> because </think>",) * len(calls) + (LAST,)
    actions = [Action(f"{thought}(call)", (call,)) for thought, call in zip(opened, calls, strict=False)]
    found = (MERI,)
    return Trajectory(
        id="t/0",
        question=Question("t", SOURCE.contents, (), task=ProposerTask(hops, SOURCE, shown)),
        role="proposer",
        segments=(),
        actions=(*actions, Action(f"{opened[-1]}(end)", answer=answer, question=question)),
        tool_results=tuple(ToolResult(call, "", found if is_valid_search(call) else ()) for call in calls),
        stop_reason=StopReason.MALFORMED if answer is None else StopReason.ANSWERED,
        answer=answer,
    )


WHO = "who is the mayor of Kalo ?"
EMPLOYER = "who employs the mayor of Kalo ?"
BLANK = ToolCall("search", {"query": "  "})
UNKNOWN = ToolCall("browse", {"query": "Meri"})
NUMBER = ToolCall("search", {"query": 7})
FIVE = "a city of C miners by"
SIX = "is a city of C miners by"
TEN = "Kalo is a city of C miners by the Long Blue Lake"
ELEVEN = "Meri. Kalo is a city of C miners by the Long Blue Lake"


@pytest.mark.parametrize(
    ("made", "think", "tool", "answer", "value"),
    [
        # n = 1: tool is 1 whatever was called
        (proposal(WHO, "Meri"), 1, 1, 1, 1.0),
        (proposal(WHO, "Meri", calls=(SEARCH,)), 1, 1, 1, 1.0),
        (proposal(WHO, "Meri", calls=(UNKNOWN,)), 1, 1, 1, 1.0),
        # n > 1: (1 + valid) / n
        (proposal(EMPLOYER, "Bank of Tolu", hops=2, calls=(SEARCH,)), 1, 2 / 2, 1, 1.0),
        (proposal(EMPLOYER, "Bank of Tolu", hops=3, calls=(SEARCH,)), 1, 2 / 3, 1, (3 + 2 / 3) / 4),
        (proposal(EMPLOYER, "Bank of Tolu", hops=4, calls=(SEARCH,) * 2), 1, 3 / 4, 1, 3.75 / 4),
        # no call: 0, not 1 / n
        (proposal(WHO, "Meri", hops=2), 1, 0, 1, 3 / 4),
        (proposal(WHO, "Meri", hops=4), 1, 0, 1, 3 / 4),
        # more calls than asked for: min(4 / 2, 1)
        (proposal(EMPLOYER, "Bank of Tolu", hops=2, calls=(SEARCH,) * 3), 1, 1, 1, 1.0),
        # n = 0, the proposer's choice: 1 with any number of valid calls, none included
        (proposal(WHO, "Meri", hops=0), 1, 1, 1, 1.0),
        (proposal(EMPLOYER, "Bank of Tolu", hops=0, calls=(SEARCH,)), 1, 1, 1, 1.0),
        (proposal(EMPLOYER, "Bank of Tolu", hops=0, calls=(SEARCH,) * 4), 1, 1, 1, 1.0),
        (proposal(EMPLOYER, "Bank of Tolu", hops=0), 1, 1, 0, 3 / 4),
        # and 0 with one that is not, where n = 1 leaves it at 1
        (proposal(WHO, "Meri", hops=0, calls=(UNKNOWN,)), 1, 0, 1, 3 / 4),
        (proposal(EMPLOYER, "Bank of Tolu", hops=0, calls=(SEARCH, BLANK)), 1, 0, 0, 2 / 4),
        # one invalid call spoils the part, though min((1 + 1) / 2, 1) would be 1, and what the others found
        (proposal(EMPLOYER, "Bank of Tolu", hops=2, calls=(SEARCH, BLANK)), 1, 0, 0, 2 / 4),
        (proposal(EMPLOYER, "Bank of Tolu", hops=2, calls=(UNKNOWN, SEARCH)), 1, 0, 0, 2 / 4),
        (proposal(EMPLOYER, "Bank of Tolu", hops=2, calls=(SEARCH, NUMBER)), 1, 0, 0, 2 / 4),
        (proposal(EMPLOYER, "Bank of Tolu", calls=(SEARCH, BLANK)), 1, 1, 0, 3 / 4),
        (proposal(WHO, "Meri", hops=2, calls=(SEARCH, BLANK)), 1, 0, 1, 3 / 4),  # the source is there all the same
        # think: 1 of 2 turns, 1 of 3, none; an empty, an unclosed and a late thought are none
        (
            proposal(EMPLOYER, "Bank of Tolu", hops=2, calls=(SEARCH,), thoughts=("", LAST)),
            *(1 / 2, 1, 1, 3.5 / 4),
        ),
        (
            proposal(EMPLOYER, "Bank of Tolu", hops=3, calls=(SEARCH,) * 2, thoughts=("<think> </think>", "", LAST)),
            *(1 / 3, 1, 1, (3 + 1 / 3) / 4),
        ),
        (proposal(WHO, "Meri", thoughts=("<think> on and on",)), 0, 1, 1, 3 / 4),
        (proposal(WHO, "Meri", thoughts=("Well. <think> late </think>",)), 0, 1, 1, 3 / 4),
        # answer: not in any passage 0; yes and no need not be; up to 5 words 1, up to 10 1/2, beyond 0
        (proposal(WHO, "Jonas"), 1, 1, 0, 3 / 4),
        (proposal("is Meri the mayor of Kalo ?", "Yes."), 1, 1, 1, 1.0),
        (proposal("is Jonas the mayor of Kalo ?", "no"), 1, 1, 1, 1.0),
        (proposal(WHO, "bank of TOLU!"), 1, 1, 0, 3 / 4),  # nobody searched for it
        # words of the normal form: without articles
        (proposal(WHO, FIVE), 1, 1, 1, 1.0),
        (proposal(WHO, SIX), 1, 1, 0.5, 3.5 / 4),
        (proposal("what is it like there ?", TEN), 1, 1, 0.5, 3.5 / 4),
        (proposal("what is it like there ?", ELEVEN), 1, 1, 0, 3 / 4),
        # everything at once: (1 + 1/2 + 2/3 + 1/2) / 4
        (
            proposal("what is it like ?", SIX, hops=3, calls=(SEARCH,), thoughts=("", LAST)),
            *(1 / 2, 2 / 3, 0.5, (1 + 1 / 2 + 2 / 3 + 1 / 2) / 4),
        ),
        # nothing but a question and an answer: (1 + 0 + 0 + 0) / 4
        (proposal(WHO, "Jonas", hops=2, calls=(BLANK,), thoughts=("", "")), 0, 0, 0, 1 / 4),
    ],
)
def test_the_score_is_the_one_worked_out_by_hand(
    made: Trajectory, think: float, tool: float, answer: float, value: float
) -> None:
    score = format_score(made)
    assert score == FormatScore(True, pytest.approx(think), pytest.approx(tool), pytest.approx(answer))
    assert score.value == pytest.approx(value)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (None, "Meri"),
        ("  ", "Meri"),
        (WHO, None),
        (WHO, ""),
        (WHO, "The?"),  # of which nothing is left
        ("is MERI the mayor of Kalo ?", "Meri"),
        ("who is the Bank-of Tolu's owner ?", "Bankof Tolu"),  # compared in normal form
        ("which Merian city has a lake ?", "Meri"),  # within a word
        (WHO, "<question> who is the mayor of Kalo ? </question> Meri"),  # a tool-call turn without <answer>
    ],
)
def test_the_gate(question: str | None, answer: str | None) -> None:
    score = format_score(proposal(question, answer))
    assert not score.gate
    assert score.value == 0.0
    assert score.think == score.tool == 1.0  # its parts are there to be seen all the same


def test_a_turn_whose_reasoning_the_template_opened_begins_with_reasoning() -> None:
    assert format_score(proposal(WHO, "Meri", thoughts=("Kalo has a mayor, so ask for her. </think>",))).think == 1.0
    assert format_score(proposal(WHO, "Meri", thoughts=("<question> x </question> hm </think>",))).think == 0.0


def test_an_answer_is_found_in_what_a_search_gave_and_not_in_the_question_nor_in_what_the_proposer_wrote() -> None:
    assert format_score(proposal("when was it founded ?", "1971", calls=(SEARCH,))).answer == 1.0
    assert format_score(proposal("when was it founded ?", "1971")).answer == 0.0
    assert format_score(proposal("where ?", "done")).answer == 0.0


def test_trap_an_answer_is_not_found_in_a_source_passage_that_was_not_shown() -> None:
    assert format_score(proposal(WHO, "Long Blue Lake", shown=True)).answer == 1.0
    assert format_score(proposal(WHO, "Long Blue Lake", shown=False)).answer == 0.0
    assert format_score(proposal("when was it founded ?", "1971", calls=(SEARCH,), shown=False)).answer == 1.0


def test_trap_the_question_and_answer_are_the_last_turns_own_not_those_of_the_prompt_or_of_an_earlier_turn() -> None:
    made = proposal(None, "Meri", calls=(SEARCH,))
    earlier = Action("<question> who ? </question>", (SEARCH,), question="who ?")
    made = Trajectory(
        made.id, made.question, made.role, (), (earlier, made.actions[-1]), (), made.stop_reason, made.answer
    )
    assert stated(made) == ("", "Meri")


@pytest.mark.parametrize(
    ("phrase", "text", "expected"),
    [
        ("Paris", "who lives in Parisian suburbs ?", True),
        ("art", "who started it ?", False),  # three characters: as a word only
        ("art", "who pays for art ?", True),
        ("7", "what happened in 1971 ?", False),
        ("C", "which language came before C ?", True),
        ("東京", "東京都の人口は?", True),  # a script without spaces
        ("the", "the the the", False),
        ("U.S.", "who rules the US ?", True),
        ("U.S.", "who rules us ?", True),  # case is not looked at
        ("U.S.", "who uses it ?", False),
    ],
)
def test_stands_in(phrase: str, text: str, expected: bool) -> None:
    assert stands_in(phrase, text) is expected


@given(st.text(min_size=1), st.text(), st.text())
def test_a_phrase_that_stands_apart_is_always_found(phrase: str, before: str, after: str) -> None:
    assert stands_in(phrase, f"{before} {phrase} {after}") or not normalise(phrase)


def test_a_task_without_a_number_of_hops_is_refused() -> None:
    with pytest.raises(DataError, match="asks a proposer for None hops"):
        format_score(Trajectory("t/0", Question("t", "x", ()), "proposer", (), (), (), StopReason.MALFORMED))


@pytest.mark.parametrize("hops", [0, 2])
def test_a_proposal_that_went_on_after_a_malformed_turn_is_paid_for_no_tool(hops: int) -> None:
    made = proposal(EMPLOYER, "Bank of Tolu", hops=hops, calls=(SEARCH,))
    broken = replace(made, actions=(Action("<think> a </think> <search> b", problem="not closed"), *made.actions))
    assert (format_score(made).tool, format_score(broken).tool) == (1.0, 0.0)
