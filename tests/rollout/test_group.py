import asyncio

import pytest

from evoseek.errors import ToolError
from evoseek.rollout.group import run_group
from evoseek.types import Invalid, Question, Scored, StopReason

QUESTION = Question("q", "who is the mayor of Kalo ?", ("Meri",))
SEARCH, FAILS = "<search> mayor </search>", "<search> fails </search>"


class Matches:
    """Rewards the golden answer; a judge that is down for the answer `down`."""

    def __init__(self):
        self.scored = []

    async def __call__(self, trajectory):
        self.scored.append(trajectory.id)
        if trajectory.answer == "down":
            raise ToolError("the judge is down")
        if trajectory.answer == "broken":
            raise KeyError("a bug")
        return Scored(float(trajectory.answer in trajectory.question.golden_answers))


def run(stage, reward, *scripts):
    sampler = stage.sampler({f"0:q/{index}": turns for index, turns in enumerate(scripts)})
    setting = stage.setting(sampler)
    return asyncio.run(run_group(QUESTION, size=len(scripts), reward=reward, key="0:q", **setting))


def test_members_are_rolled_out_and_scored_in_order(tags):
    group = run(tags, Matches(), [SEARCH, "<answer> Meri </answer>"], ["<answer> Kalo </answer>"], ["no action"])
    assert [trajectory.id for trajectory in group.trajectories] == ["0:q/0", "0:q/1", "0:q/2"]
    assert group.outcomes == (Scored(1.0), Scored(0.0), Scored(0.0))
    assert group.key == "0:q"


def test_trap_a_failed_tool_is_invalid_and_never_a_reward(tags):
    reward = Matches()
    group = run(tags, reward, [FAILS], ["<answer> Meri </answer>"])
    assert group.outcomes == (Invalid(StopReason.TOOL_FAILED, "search: ToolError: the engine is down"), Scored(1.0))
    assert reward.scored == ["0:q/1"]


def test_trap_a_failed_judge_is_invalid_and_never_a_reward(tags):
    group = run(tags, Matches(), ["<answer> down </answer>"], ["<answer> Meri </answer>"])
    assert group.outcomes == (Invalid(StopReason.REWARD_FAILED, "the judge is down"), Scored(1.0))
    assert group.trajectories[0].stop_reason is StopReason.ANSWERED


def test_a_failed_sampler_is_invalid(tags):
    group = run(tags, Matches(), [SEARCH])
    assert group.outcomes[0].reason is StopReason.SAMPLER_FAILED


def test_a_bug_in_a_reward_function_is_raised(tags):
    with pytest.raises(KeyError):
        run(tags, Matches(), ["<answer> broken </answer>"])
