"""Agents made from settings."""

import json
import shutil

import pytest

from evoseek.assembly.agent import Agent
from evoseek.assembly.sources import load_settings
from evoseek.errors import ConfigError
from evoseek.models.load import load_policy, save_policy
from evoseek.models.source import tiny_policy_dir
from evoseek.renderers.encoding import plain
from evoseek.rollout.limits import Limits
from evoseek.rollout.tools import SearchTool
from evoseek.types import Question


def agent_of(model, **options):
    settings = load_settings(options={"policy.model": str(model)} | options)
    return Agent.of(settings, load_policy(settings.policy.model))


def test_auto_finds_the_prompts_that_a_policy_was_made_for(tmp_path):
    shutil.copytree(tiny_policy_dir(), tmp_path / "copy")
    save_policy(load_policy("tiny"), tmp_path / "saved")
    for model in ("tiny", tmp_path / "copy", tmp_path / "saved"):
        assert agent_of(model).prompts["solver"].text(question="who ?", format="tags") == "solve : who ?"
    settings = json.loads((tmp_path / "copy" / "config.json").read_text())
    del settings["evoseek_prompts"]
    (tmp_path / "copy" / "config.json").write_text(json.dumps(settings))
    solver = agent_of(tmp_path / "copy").prompts["solver"]
    assert "<search>" in solver.text(question="who ?", format="tags", max_calls=4)


def test_without_tools_the_prompt_is_that_of_a_closed_book_and_with_them_it_states_the_calls():
    """The last of 4 turns may only answer. A tiny policy is asked as in training."""
    question, calls = Question("q", "who ?", ()), {"rollout.max_turns": 4, "policy.prompts": "short"}
    agent = agent_of("tiny", **calls)
    tool = SearchTool(None, template=agent.prompts["observation"])
    asked = {tools: plain(agent.solver(list(tools)).env.messages(question)[0].content) for tools in ((), (tool,))}
    assert asked[()].startswith("Answer the question from what you know.")
    assert "search" not in asked[()]
    assert "at most 3 times" in asked[(tool,)]
    alone, searching = (agent_of("tiny").solver(tools).env.messages(question) for tools in ([], [tool]))
    assert plain(alone[0].content) == plain(searching[0].content) == "solve : who ?"


def test_a_turn_ends_where_the_model_s_generation_settings_end_it():
    policy = load_policy("tiny")
    policy.model.generation_config.eos_token_id = [3, 7]
    agent = Agent.of(load_settings(options={"policy.model": "tiny"}), policy)
    assert {3, 7} <= {*agent.renderer([]).stop.token_ids}


def test_settings_of_rollouts_reach_the_agent_and_its_rollers():
    options = {
        "rollout.max_turns": 4,
        "rollout.max_tool_calls": 3,
        "rollout.max_tokens_per_turn": 6,
        "rollout.max_total_tokens": 90,
        "rollout.deadline_s": 50.0,
        "rollout.temperature": 0.75,
        "sampler.slots": 7,
        "run.seed": 11,
    }
    agent = agent_of("tiny", **options)
    limits = Limits(max_turns=4, max_tool_calls=3, max_tokens_per_turn=6, max_total_tokens=90, deadline_s=50.0)
    assert agent.limits == limits
    assert (agent.sampler.max_length, len(agent.sampler._slots), agent.sampler.lockstep) == (90, 7, False)
    solver = agent.solver([])
    assert (solver.limits, solver.temperature, solver.seed, solver.sampler) == (limits, 0.75, 11, agent.sampler)
    assert solver.at(0.5).temperature == 0.5
    assert solver.prompt_length(Question("q", "who ?", ())) > 0
    assert Agent.of(agent.settings, agent.policy, lockstep=True).sampler.lockstep


def test_a_rollout_is_no_longer_than_its_model_was_made_for():
    with pytest.raises(ConfigError, match=r"max_total_tokens is 1000000, but the model .* made for at most \d+ tokens"):
        agent_of("tiny", **{"rollout.max_total_tokens": 10**6})
