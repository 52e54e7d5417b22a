import asyncio

import pytest
from evoseek.rollout.group import run_group

from evoseek.errors import ToolError
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
    """Every attempt at a member has the member's script."""
    attempts = [(f"0:q/{index}{suffix}", turns) for index, turns in enumerate(scripts) for suffix in ("", "r1", "r2")]
    sampler = stage.sampler(dict(attempts))
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
    assert [trajectory.id for trajectory in group.trajectories] == ["0:q/0r2", "0:q/1"]


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


def refill(stage, reward, script, **options):
    setting = stage.setting(stage.sampler(script))
    return asyncio.run(run_group(QUESTION, size=2, reward=reward, key="k", **setting, **options))


def test_an_invalid_member_is_rolled_out_again_and_its_failures_stay_countable(tags):
    right, wrong = ["<answer> Meri </answer>"], ["<answer> Kalo </answer>"]
    script = {"k/0": [FAILS], "k/0r1": ["<answer> down </answer>"], "k/0r2": right, "k/1": wrong}
    group = refill(tags, Matches(), script)
    assert [trajectory.id for trajectory in group.trajectories] == ["k/0r2", "k/1"]
    assert group.outcomes == (Scored(1.0), Scored(0.0))
    assert [(trajectory.id, failure.reason) for trajectory, failure in group.replaced] == [
        ("k/0", StopReason.TOOL_FAILED),
        ("k/0r1", StopReason.REWARD_FAILED),
    ]


@pytest.mark.parametrize("refills", [0, 1, 2])
def test_refills_are_bounded_and_the_last_failure_stays(tags, refills):
    script = {f"k/{name}": [FAILS] for name in ("0", "0r1", "0r2", "1", "1r1", "1r2")}
    group = refill(tags, Matches(), script, refills=refills)
    assert [failure.reason for _, failure in group.replaced] == [StopReason.TOOL_FAILED] * 2 * refills
    assert {outcome.reason for outcome in group.outcomes} == {StopReason.TOOL_FAILED}
    last = f"r{refills}" if refills else ""
    assert [trajectory.id for trajectory in group.trajectories] == [f"k/0{last}", f"k/1{last}"]
