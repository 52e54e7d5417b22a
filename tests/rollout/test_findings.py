"""What searches found, and when it is so little that the engine must have failed."""

import pytest

from evoseek.rollout.roller import failed_if_nothing_found, nothing_found, searches
from evoseek.types import (
    Invalid,
    Passage,
    Question,
    Scored,
    StopReason,
    ToolCall,
    ToolResult,
    Trajectory,
    TrajectoryGroup,
)

FOUND = (Passage("p", "d", "kalo", "kalo 's mayor is meri ."),)
SEARCH, WEB = ToolCall("search", {"query": "kalo"}), ToolCall("web_search", {"queries": ["kalo", "meri"]})
NO_SEARCH = [
    ToolCall("search", {"query": "  "}),
    ToolCall("search", {"query": 7}),
    ToolCall("search", {}),
    ToolCall("web_search", {"queries": []}),
    ToolCall("web_search", {"queries": [7]}),
    ToolCall("web_search", {"queries": "kalo"}),
    ToolCall("browse", {"urls": ["http://kalo.test/"]}),
]


def rollout(*results):
    question = Question("q", "who ?", ("meri",))
    return Trajectory("q/0", question, "solver", (), (), results, StopReason.ANSWERED, "meri")


@pytest.mark.parametrize("call", [SEARCH, WEB])
def test_ten_searches_that_found_nothing_are_a_failure_and_nine_are_none(call):
    empty = ToolResult(call, "")
    assert nothing_found([rollout(*[empty] * 4), rollout(), rollout(*[empty] * 5)]) is None
    failure = nothing_found([rollout(*[empty] * 4), rollout(), rollout(*[empty] * 6)])
    assert failure.reason is StopReason.TOOL_FAILED
    assert failure.detail.startswith("The search engine found nothing in any of 10 searches, the first for 'kalo'.")


def test_one_passage_is_enough_for_an_engine_that_works():
    assert nothing_found([rollout(*[ToolResult(SEARCH, "")] * 99, ToolResult(WEB, "", FOUND))]) is None


def test_a_search_without_such_a_tool_is_the_policys_mistake_and_none_of_an_engine():
    said = [ToolResult(SEARCH, 'There is no tool "search". The tools are: none.')] * 20
    assert searches([rollout(*said)]) == []
    assert nothing_found([rollout(*said)]) is None


@pytest.mark.parametrize("call", NO_SEARCH)
def test_what_asks_for_nothing_is_no_search(call):
    """A policy whose calls are all wrong is to be scored: its engine was never asked."""
    assert searches([rollout(ToolResult(call, ""), ToolResult(SEARCH, ""))]) == [ToolResult(SEARCH, "")]
    assert nothing_found([rollout(*[ToolResult(call, "")] * 99)]) is None


def test_a_long_query_is_cut():
    call = ToolCall("search", {"query": "kalo " * 99})
    assert len(nothing_found([rollout(*[ToolResult(call, "")] * 10)]).detail) < 300


def test_all_groups_fail_together_also_rollouts_that_did_not_search_and_those_that_failed_otherwise():
    late = Invalid(StopReason.DEADLINE, "too slow")
    empty = ToolResult(SEARCH, "")
    groups = [
        TrajectoryGroup("a", (rollout(*[empty] * 5), rollout()), (Scored(0.0), Scored(1.0))),
        TrajectoryGroup("b", (rollout(*[empty] * 5),), (late,), ((rollout(), late),)),
    ]
    failed = failed_if_nothing_found(groups)
    assert {outcome.reason for group in failed for outcome in group.outcomes} == {StopReason.TOOL_FAILED}
    assert [(group.key, group.trajectories, group.replaced) for group in failed] == [
        (group.key, group.trajectories, group.replaced) for group in groups
    ]
    assert failed_if_nothing_found(groups[:1]) == groups[:1]
