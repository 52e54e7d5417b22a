"""Demonstrations as rollouts: the tokens and masks are those that a real rollout would have had."""

import asyncio

import pytest
from tests.doubles.scripted import ScriptedSampler

from evoseek.errors import ConfigError, ToolError
from evoseek.questions.demonstrations import DemonstratedTurn, Demonstration, ProposerDemonstration
from evoseek.rollout.environments import PassageProposerEnv, passage_task
from evoseek.rollout.limits import Limits
from evoseek.rollout.prompts import load_prompts
from evoseek.rollout.roller import Roller
from evoseek.rollout.run import run_trajectory
from evoseek.training.demonstrations import Roles, demonstration_of, play
from evoseek.types import Passage, Question, StopReason

QUESTION = Question("q", "who is the mayor of Kalo ?", ("Meri",))
TURNS = (
    DemonstratedTurn("who ?", query="mayor of Kalo"),
    DemonstratedTurn(query="mayor"),
    DemonstratedTurn("it is Meri", answer="Meri"),
)
DEMONSTRATION = Demonstration(QUESTION, TURNS)
SAID = {
    "tags": [
        "<think> who ? </think> <search> mayor of Kalo </search>",
        "<search> mayor </search>",
        "<think> it is Meri </think> <answer> Meri </answer>",
    ],
    "tools": [
        "<think>\nwho ?\n</think>\n\n"
        '<tool_call>\n{"name": "search", "arguments": {"query": "mayor of Kalo"}}\n</tool_call><|im_end|>',
        '<tool_call>\n{"name": "search", "arguments": {"query": "mayor"}}\n</tool_call><|im_end|>',
        "<think>\nit is Meri\n</think>\n\n<answer> Meri </answer><|im_end|>",
    ],
}
every_format = pytest.mark.parametrize("format", ["tags", "tools", "chat_tags"])


KALO = Passage("p", "p", "Kalo", "Kalo's mayor is Meri.")
PROPOSAL = ProposerDemonstration(
    "p",
    KALO,
    2,
    (
        DemonstratedTurn("Meri is its mayor", query="Meri"),
        DemonstratedTurn("she is 40", question="how old is the mayor of Kalo ?", answer="40"),
    ),
)
PROPOSED = {
    "tags": [
        "<think> Meri is its mayor </think> <search> Meri </search>",
        "<think> she is 40 </think> <question> how old is the mayor of Kalo ? </question> <answer> 40 </answer>",
    ],
    "tools": [
        "<think>\nMeri is its mayor\n</think>\n\n"
        '<tool_call>\n{"name": "search", "arguments": {"query": "Meri"}}\n</tool_call><|im_end|>',
        "<think>\nshe is 40\n</think>\n\n"
        "<question> how old is the mayor of Kalo ? </question> <answer> 40 </answer><|im_end|>",
    ],
}


def proposer_env(stage):
    return PassageProposerEnv([stage.tool], load_prompts("tiny"), stage.renderer.format)


def played(stage, *demonstrations, **limits):
    setting = stage.setting(ScriptedSampler({}, stage.tokenizer), **limits)
    solver, proposer = (
        Roller(env, setting["renderer"], setting["sampler"], setting["limits"])
        for env in (setting["env"], proposer_env(stage))
    )
    return asyncio.run(play(demonstrations, Roles(solver, proposer)))


@pytest.fixture
def stage(request, format):
    return request.getfixturevalue(format)


@every_format
def test_ids_and_mask_are_those_of_a_rollout_in_which_a_policy_writes_the_same(stage, format):
    (shown,) = played(stage, DEMONSTRATION).trajectories
    said = SAID["tools" if format == "tools" else "tags"]
    sampler = ScriptedSampler({"q/0": said}, stage.tokenizer)
    rolled = asyncio.run(run_trajectory(QUESTION, trajectory_id="q/0", **stage.setting(sampler)))
    assert rolled.stop_reason is StopReason.ANSWERED
    assert shown.token_ids == rolled.token_ids
    assert shown.loss_mask == rolled.loss_mask
    assert shown.tool_results == rolled.tool_results
    written = [i for i, acts in zip(shown.token_ids, shown.loss_mask, strict=True) if acts]
    assert written == [i for text in said for i in stage.tokenizer.encode(text, add_special_tokens=False)]


@every_format
def test_a_proposers_ids_are_those_of_a_real_proposal_and_both_roles_may_be_in_one_file(stage, format):
    solved, shown = played(stage, DEMONSTRATION, PROPOSAL).trajectories
    said = PROPOSED["tools" if format == "tools" else "tags"]
    sampler = ScriptedSampler({"p/0": said}, stage.tokenizer)
    setting = {**stage.setting(sampler), "env": proposer_env(stage)}
    task = passage_task("p", KALO, 2)
    rolled = asyncio.run(run_trajectory(task, trajectory_id="p/0", **setting))
    assert rolled.stop_reason is StopReason.ANSWERED
    assert (shown.token_ids, shown.loss_mask) == (rolled.token_ids, rolled.loss_mask)
    assert (shown.question, shown.tool_results) == (rolled.question, rolled.tool_results)
    assert (shown.role, shown.actions[-1].question, shown.answer) == (
        "proposer",
        "how old is the mayor of Kalo ?",
        "40",
    )
    assert (solved.role, solved.actions[-1].question) == ("solver", None)


def test_a_proposal_is_no_demonstration_of_an_answer(tags):
    (shown,) = played(tags, PROPOSAL).trajectories
    assert demonstration_of(shown) is None


def test_a_proposed_question_that_the_format_cannot_write_is_left_out(tags):
    odd = DemonstratedTurn(question="who </question> is it ?", answer="Meri")
    (reason,) = played(tags, ProposerDemonstration("p", KALO, 1, (odd,))).left_out
    assert "is read back from its tokens as 'who'" in reason


@every_format
def test_a_rollout_gives_the_demonstration_that_it_was(stage, format):
    (shown,) = played(stage, DEMONSTRATION).trajectories
    assert demonstration_of(shown) == DEMONSTRATION


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (["maybe so <search> a </search>", "<answer> Meri </answer>"], ["maybe so", ""]),
        (
            ["<think> 1 < 2 </think> <search> a </search>", "so it is . </think> <answer> b </answer>"],
            ["1 < 2", "so it is ."],
        ),
        (["<search> a </search>", "<search> b"], None),
        (["<search></search>", "<answer> Meri </answer>"], None),
        (["nothing", "<answer> Meri </answer>"], None),
        (["<answer></answer>"], None),
    ],
)
def test_thoughts_are_kept_and_what_cannot_be_written_down_is_none(tags, said, kept):
    trajectory = tags.run({"q/0": said}, max_malformed=1)[0]
    found = demonstration_of(trajectory)
    assert (found and [turn.thought for turn in found.turns]) == kept


@pytest.mark.parametrize(
    ("limits", "setting"),
    [
        ({"max_turns": 2}, "rollout.max_turns"),
        ({"max_tool_calls": 1}, "rollout.max_tool_calls"),
        ({"max_tool_calls": 1, "final_answer": "no more"}, "rollout.max_tool_calls"),
        ({"max_tokens_per_turn": 5, "max_malformed": 2}, "rollout.max_tokens_per_turn"),
        ({"max_total_tokens": 60}, "rollout.max_total_tokens"),
        ({"max_total_tokens": 4}, "rollout.max_total_tokens"),
    ],
)
def test_one_that_is_longer_than_a_rollout_may_be_is_left_out(tags, limits, setting):
    short = Demonstration(QUESTION, (DemonstratedTurn(answer="Meri"),))
    found = played(tags, DEMONSTRATION, short, **limits)
    reasons = [reason for reason in found.left_out if setting in reason]
    assert reasons
    assert found.left_out.total() + len(found.trajectories) == 2


def test_one_that_the_format_cannot_write_is_left_out_with_the_reason(tags):
    odd = Demonstration(QUESTION, (DemonstratedTurn(answer="a </answer> b"),))
    found = played(tags, odd, DEMONSTRATION, odd)
    assert [trajectory.answer for trajectory in found.trajectories] == ["Meri"]
    ((reason, count),) = found.left_out.items()
    assert count == 2
    assert "is read back from its tokens as 'a'" in reason


def test_a_failed_search_is_an_error_and_no_demonstration(tags):
    with pytest.raises(ToolError, match=r"The demonstration 'q' could not be shown: .*the engine is down"):
        played(tags, Demonstration(QUESTION, (DemonstratedTurn(query="fails"), TURNS[2])))


def test_without_the_tool_search_nothing_can_be_shown(tags):
    tags.tool.name = "browse"
    with pytest.raises(ConfigError, match="the tools are browse"):
        played(tags, DEMONSTRATION)


def test_limits_of_time_do_not_cut_what_was_written_before(tags):
    assert played(tags, DEMONSTRATION, deadline_s=1e-9, wait_s=60.0).trajectories
    assert Limits(deadline_s=1e-9).waiting_s == 1e-9
