"""Somebody who watches a rollout is given its records in the order in which they arise, and changes none of it."""

import asyncio

import pytest
from tests.doubles.scripted import ScriptedChat

from evoseek.renderers.encoding import plain
from evoseek.rollout.environments import HistoryEnv, SolverEnv
from evoseek.rollout.limits import Limits
from evoseek.rollout.prompts import load_prompts
from evoseek.rollout.roller import Roller
from evoseek.rollout.run import converse
from evoseek.types import Action, Message, Question, ToolResult

QUESTION = Question("q", "who is the mayor of Kalo ?", ())
TURNS = ["<search> mayor </search>", "<search> Kalo </search>", "<answer> Meri </answer>"]


def told(seen):
    return [
        record.answer or record.tool_calls[0].arguments["query"] if isinstance(record, Action) else record.text
        for record in seen
    ]


EXPECTED = ["mayor", "mayor : Meri", "Kalo", "Kalo : Meri", "Meri"]


def test_a_policys_rollout(tags):
    seen, rollers = [], [Roller(**tags.setting(tags.sampler({"q/0": TURNS}))) for _ in range(2)]
    watched = asyncio.run(rollers[0].one(QUESTION, "q/0", watch=seen.append))
    assert told(seen) == EXPECTED
    assert watched == asyncio.run(rollers[1].one(QUESTION, "q/0"))


def test_a_chat_models_rollout(mayors):
    chat, seen = ScriptedChat({f"q/0/turn-{n}": turn for n, turn in enumerate(TURNS)}), []
    env = SolverEnv([mayors], load_prompts("tiny"))
    asyncio.run(converse(QUESTION, env=env, chat=chat, limits=Limits(), trajectory_id="q/0", watch=seen.append))
    assert told(seen) == EXPECTED


def test_of_concurrent_calls_the_quickest_result_comes_first_though_not_in_the_trajectory(tools):
    call = '<tool_call>\n{"name": "search", "arguments": {"query": "%s"}}\n</tool_call>'
    turns = ["\n".join(call % query for query in ("waits", "mayor")) + "<|im_end|>", "<answer> Meri </answer>"]
    seen = []
    trajectory = asyncio.run(
        Roller(**tools.setting(tools.sampler({"q/0": turns}))).one(QUESTION, "q/0", watch=seen.append)
    )
    assert [record.text for record in seen if isinstance(record, ToolResult)] == ["mayor : Meri", "waits : Meri"]
    assert [result.text for result in trajectory.tool_results] == ["waits : Meri", "mayor : Meri"]


def test_a_watched_failure_shows_what_came_before_it(tags):
    seen = []
    roller = Roller(**tags.setting(tags.sampler({"q/0": ["<search> fails </search>"]})))
    trajectory = asyncio.run(roller.one(QUESTION, "q/0", watch=seen.append))
    assert trajectory.failure
    assert told(seen) == ["fails"]


def test_a_conversation_comes_before_the_prompt_and_is_outside_text(chat_tags):
    history = [Message("user", "where is Kalo?"), Message("assistant", "By the sea. <search> x </search><|im_end|>")]
    sampler = chat_tags.sampler({"q/0": TURNS[2:]})
    roller = Roller(**chat_tags.setting(sampler)).after(history)
    assert asyncio.run(roller.one(QUESTION, "q/0")).answer == "Meri"
    prompt = chat_tags.tokenizer.decode(list(sampler.requests[0].token_ids))
    first, second, third = (prompt.index(text) for text in ("where is Kalo?", "By the sea.", "mayor of Kalo"))
    assert first < second < third
    assert "<search> x" not in prompt
    ends = sampler.requests[0].token_ids.count(chat_tags.tokenizer.convert_tokens_to_ids("<|im_end|>"))
    assert ends == 3  # of the three messages; the one in a text stays characters


@pytest.mark.parametrize("history", [[], [Message("user", "hello")]])
def test_an_environment_with_a_history_is_otherwise_the_same(history, mayors):
    env = SolverEnv([mayors], load_prompts("default"))
    longer = HistoryEnv(env, history)
    assert (longer.role, longer.tools) == (env.role, env.tools)
    assert longer.messages(QUESTION) == [*history, *env.messages(QUESTION)]
    assert plain(longer.malformed("it is empty")) == plain(env.malformed("it is empty"))
