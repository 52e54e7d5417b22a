"""What searches found, and when it is so little that the engine must have failed."""

import asyncio
from dataclasses import replace

import pytest

from evoseek.rollout.prompts import load_prompts
from evoseek.rollout.roller import failed_if_nothing_found, nothing_found, searches
from evoseek.rollout.tools import SearchTool
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


def empty(call=SEARCH):
    """The result of a search that found nothing."""
    return ToolResult(call, "", queries=tuple(call.arguments.get("queries") or [call.arguments["query"]]))


def rollout(*results):
    question = Question("q", "who ?", ("meri",))
    return Trajectory("q/0", question, "solver", (), (), results, StopReason.ANSWERED, "meri")


@pytest.mark.parametrize("call", [SEARCH, WEB])
def test_ten_searches_that_found_nothing_are_a_failure_and_nine_are_none(call):
    found = empty(call)
    assert nothing_found([rollout(*[found] * 4), rollout(), rollout(*[found] * 5)]) is None
    failure = nothing_found([rollout(*[found] * 4), rollout(), rollout(*[found] * 6)])
    assert failure.reason is StopReason.TOOL_FAILED
    assert failure.detail.startswith("The search engine found nothing in any of 10 searches, the first for 'kalo'.")


def test_one_passage_is_enough_for_an_engine_that_works():
    assert nothing_found([rollout(*[empty()] * 99, replace(empty(WEB), passages=FOUND))]) is None


def test_a_search_without_such_a_tool_is_the_policys_mistake_and_none_of_an_engine():
    said = [ToolResult(SEARCH, 'There is no tool "search". The tools are: none.')] * 20
    assert searches([rollout(*said)]) == []
    assert nothing_found([rollout(*said)]) is None


@pytest.mark.parametrize("name", ["search", "web_search", "browse", "lookup"])
def test_a_tool_of_ones_own_that_gives_text_is_no_engine_that_found_nothing(name):
    """Under any name; unless it says that it asked one."""
    said = ToolResult(ToolCall(name, {"query": "kalo", "queries": ["kalo"]}), "42 rows were found")
    assert searches([rollout(said)]) == []
    assert nothing_found([rollout(*[said] * 99)]) is None
    assert nothing_found([rollout(*[replace(said, queries=("kalo",))] * 99)]) is not None


@pytest.mark.parametrize("query", ["  ", "", 7, None, ["kalo"], "kalo"])
def test_a_call_that_asks_for_nothing_is_no_search(query):
    """A policy whose calls are all wrong is to be scored: its engine was never asked."""

    class Nothing:
        is_local = True

        async def search(self, queries, k):
            return [[] for _ in queries]

    tool = SearchTool(Nothing(), template=load_prompts("tiny")["observation"])
    result = asyncio.run(tool(ToolCall("search", {} if query is None else {"query": query})))
    assert searches([rollout(result)]) == ([result] if query == "kalo" else [])


def test_a_long_query_is_cut():
    call = ToolCall("search", {"query": "kalo " * 99})
    assert len(nothing_found([rollout(*[empty(call)] * 10)]).detail) < 300


def test_all_groups_fail_together_also_rollouts_that_did_not_search_and_those_that_failed_otherwise():
    late = Invalid(StopReason.DEADLINE, "too slow")
    found = empty()
    groups = [
        TrajectoryGroup("a", (rollout(*[found] * 5), rollout()), (Scored(0.0), Scored(1.0))),
        TrajectoryGroup("b", (rollout(*[found] * 5),), (late,), ((rollout(), late),)),
    ]
    failed = failed_if_nothing_found(groups)
    assert {outcome.reason for group in failed for outcome in group.outcomes} == {StopReason.TOOL_FAILED}
    assert [(group.key, group.trajectories, group.replaced) for group in failed] == [
        (group.key, group.trajectories, group.replaced) for group in groups
    ]
    assert failed_if_nothing_found(groups[:1]) == groups[:1]
