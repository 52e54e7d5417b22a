"""The environment of a model that is asked instead of the policy."""

import pytest

from evoseek.env.prompts import load_prompts
from evoseek.jobs.chat_roller import chat_environment
from evoseek.policy.encoding import split_trusted
from evoseek.search.lexical import LexicalIndex
from evoseek.training.context import Context
from evoseek.training.given import load_settings
from evoseek.types import Passage, Question


@pytest.fixture
def context(tmp_path):
    LexicalIndex.build(tmp_path / "index", [Passage("kalo#0", "kalo", "Kalo", "Meri is the mayor of Kalo.")])
    sets = [f"search.index={tmp_path / 'index'}", "rollout.max_tool_calls=4", "rollout.max_turns=3"]
    with Context(load_settings(sets=sets)) as context:
        yield context


def prompt(env):
    (message,) = env.messages(Question("q", "Who?", ("Meri",)))
    return "".join(piece for _, piece in split_trusted(message.content))


def test_it_searches_by_tags_and_is_told_how_often_it_can(context):
    env, limits = chat_environment(context, load_prompts("default"), context.held_out_engine)
    assert (set(env.tools), limits.max_tool_calls, limits.max_turns) == ({"search"}, 4, 3)
    assert "at most 2 times" in prompt(env)  # the third turn can only answer
    assert "inside <search> and </search>" in prompt(env)


def test_without_searching_it_has_no_tools_and_is_not_told_of_any(context):
    env, _ = chat_environment(context, load_prompts("default"), context.held_out_engine, search=False)
    assert env.tools == {}
    assert "search" not in prompt(env)
