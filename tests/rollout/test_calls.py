"""The tool calls of a rollout."""

import asyncio

import pytest

from evoseek.renderers.encoding import outside, plain, split_trusted, trusted
from evoseek.rollout.calls import ToolCalls, ToolFailedError
from evoseek.rollout.environments import SolverEnv
from evoseek.rollout.limits import Limits
from evoseek.rollout.prompts import load_prompts
from evoseek.types import Action, Passage, Question, ToolCall, ToolResult


@pytest.fixture
def calls_of(mayors):
    env = SolverEnv([mayors], load_prompts("tiny"))
    return lambda **limits: ToolCalls(env, Question("q", "who ?", ()), "q/0", Limits(**limits))


def texts(calls, *queries):
    return asyncio.run(calls.texts([Action("", tuple(ToolCall("search", {"query": query}) for query in queries))]))


def test_calls_are_made_up_to_the_limit(calls_of):
    calls = calls_of(max_tool_calls=3)
    assert texts(calls, "a", "b") == ["a : Meri", "b : Meri"]
    assert texts(calls, "c", "d") is None
    assert texts(calls, "c") == ["c : Meri"]
    assert len(calls.results) == 3


def test_whoever_asks_for_too_many_is_told_once_and_then_has_none(calls_of):
    calls = calls_of(max_tool_calls=1, final_answer="answer now")
    assert texts(calls, "a", "b") == ["answer now", "answer now"]
    assert texts(calls, "a") is None
    assert calls.results == []


def test_what_came_is_kept_when_another_call_fails(calls_of):
    calls = calls_of()
    with pytest.raises(ToolFailedError, match="search: ToolError: the engine is down"):
        texts(calls, "fails", "a")
    assert [result.text for result in calls.results] == ["a : Meri"]


def test_a_tool_that_does_not_exist_is_told_so(calls_of):
    texts = asyncio.run(calls_of().texts([Action("", (ToolCall("fly", {}),))]))
    assert texts == ['There is no tool "fly". The tools are: search.']


class Reasoned:
    """A tool that repeats what was written before the call."""

    name, schema, reasoning = "search", {}, ""

    def for_question(self, question, trajectory_id):
        return self

    def after(self, reasoning):
        tool = Reasoned()
        tool.reasoning = reasoning
        return tool

    async def __call__(self, call):
        return ToolResult(call, f"after {self.reasoning!r}")


def test_a_tool_may_be_told_what_was_written_before_the_call():
    call = ToolCall("search", {"query": "a"})
    calls = ToolCalls(SolverEnv([Reasoned()], load_prompts("tiny")), Question("q", "who ?", ()), "q/0", Limits())
    turns = [Action("one"), Action("two", (call, call))]
    assert asyncio.run(calls.texts(turns)) == ["after 'one\\ntwo'"] * 2


@pytest.mark.parametrize("text", ["word " * 200_000, trusted("meri " * 200_000), trusted("a" + outside("b " * 99_999))])
def test_a_result_of_any_length_is_cut_before_it_is_encoded_or_kept(text):
    class Long:
        name, schema = "search", {"type": "function", "function": {"name": "search"}}

        def for_question(self, question, trajectory_id):
            return self

        async def __call__(self, call):
            return ToolResult(call, text)

    limits = Limits(max_total_tokens=100)
    question = Question("q", "who ?", ("meri",))
    calls = ToolCalls(SolverEnv([Long()], load_prompts("tiny")), question, "q/0", limits)
    (shown,) = asyncio.run(calls.texts([Action("", (ToolCall("search", {"query": "kalo"}),))]))
    assert calls.results[0].text == shown
    assert len(plain(shown)) == limits.max_result_characters
    assert plain(text).startswith(plain(shown))
    assert [kind for kind, _ in split_trusted(shown)] == [kind for kind, _ in split_trusted(text)][:2]


class Shows:
    """A tool that always shows the document `d`."""

    name, schema = "look", {}

    def for_question(self, question, trajectory_id):
        return self

    async def __call__(self, call):
        return ToolResult(call, "seen", (Passage("d#0", "d", "D", "Ada"),))


@pytest.mark.parametrize(("hidden", "fails"), [(["d"], True), (["e"], False), ([], False)])
def test_a_tool_that_shows_what_is_hidden_from_the_question_has_failed(hidden, fails):
    """Of any tool, also of one of a user's own, which may know nothing of hidden documents."""
    question = Question("q", "who ?", (), {"answerable": False, "hidden": hidden})
    calls = ToolCalls(SolverEnv([Shows()], load_prompts("tiny")), question, "q/0", Limits())
    look = [Action("", (ToolCall("look", {}),))]
    if not fails:
        assert asyncio.run(calls.texts(look)) == ["seen"]
        return
    with pytest.raises(ToolFailedError, match=r"look: ToolError: It showed the document 'd', which is hidden"):
        asyncio.run(calls.texts(look))
