"""A rollout's two times: what its policy writes is scored however slow it is, and waiting is nobody's fault."""

import asyncio
from dataclasses import replace

import pytest

from evoseek.errors import ConfigError
from evoseek.policy.load import load_policy
from evoseek.policy.sampler import TorchSampler
from evoseek.policy.scripted import ScriptedSampler
from evoseek.policy.tags import TagRenderer
from evoseek.reward.functions import AnswerReward
from evoseek.rollout.clock import Clock
from evoseek.rollout.limits import Limits
from evoseek.rollout.roller import Roller
from evoseek.rollout.run import run_trajectory
from evoseek.types import Invalid, Question, SampleRequest, Scored, StopConditions, StopReason

QUESTION = Question("q", "who is the mayor of Kalo ?", ("Meri",))
SEARCH, ANSWER, SLOW = "<search> mayor </search>", "<answer> Meri </answer>", "Kalo " * 40
FOREVER = 600.0


def rollout(stage, sampler, **limits):
    return asyncio.run(run_trajectory(QUESTION, trajectory_id="q/0", **stage.setting(sampler, **limits)))


def test_a_policy_that_writes_for_too_long_is_scored_with_what_it_wrote(tags):
    """At 0.01 s a token 0.2 s are 20 tokens, of which the first turn takes some."""
    sampler = tags.sampler({"q/0": [SEARCH, SLOW]}, token_s=0.01)
    trajectory = rollout(tags, sampler, deadline_s=0.2)
    assert (trajectory.stop_reason, trajectory.failure) == (StopReason.MAX_TIME, None)
    assert not trajectory.stop_reason.is_failure
    assert trajectory.num_action_tokens == 20
    first, second = sampler.requests
    assert first.max_seconds == 0.2
    assert second.max_seconds == pytest.approx(0.2 - 0.01 * len(sampler.completions[0].token_ids))


def test_who_is_out_of_time_is_not_told_to_go_on(tags):
    trajectory = rollout(tags, tags.sampler({"q/0": [SLOW, ANSWER]}, token_s=0.01), deadline_s=0.2, max_malformed=3)
    assert (trajectory.stop_reason, trajectory.num_action_tokens) == (StopReason.MAX_TIME, 20)


def test_no_call_is_made_when_the_time_is_over(tags):
    length = len(tags.tokenizer.encode(SEARCH, add_special_tokens=False))
    trajectory = rollout(tags, tags.sampler({"q/0": [SEARCH, ANSWER]}, token_s=1.0), deadline_s=length)
    assert trajectory.stop_reason is StopReason.MAX_TIME
    assert (len(trajectory.actions), trajectory.tool_results) == (1, ())
    enough = rollout(tags, tags.sampler({"q/0": [SEARCH, ANSWER]}, token_s=1.0), deadline_s=FOREVER)
    assert enough.stop_reason is StopReason.ANSWERED


def test_slow_rollouts_stay_in_their_group_and_in_its_baseline(tags):
    script = {"g/0": [ANSWER], "g/1": [SLOW], "g/2": [ANSWER], "g/3": [SLOW]}
    setting = tags.setting(tags.sampler(script, token_s=0.01), deadline_s=0.3)
    group = asyncio.run(Roller(**setting).group(QUESTION, size=4, reward=AnswerReward(), key="g"))
    assert [outcome.reward for outcome in group.outcomes] == [1.0, 0.0, 1.0, 0.0]
    assert group.replaced == ()


def test_a_tool_that_hangs_makes_the_rollout_invalid(tags):
    sampler = tags.sampler({"q/0": [SEARCH, "<search> hangs </search>"]}, token_s=0.01)
    trajectory = rollout(tags, sampler, deadline_s=FOREVER, wait_s=0.05)
    assert trajectory.stop_reason is StopReason.DEADLINE
    assert trajectory.failure == "The rollout waited for more than 0.05 s."
    assert trajectory.num_action_tokens > 0


class Hanging(ScriptedSampler):
    """Never gives the second turn."""

    async def sample(self, request):
        return await super().sample(request) if request.turn == 0 else await asyncio.Event().wait()


def test_a_sampler_that_hangs_makes_it_invalid_after_both_times_at_the_latest(tags):
    trajectory = rollout(tags, Hanging({"q/0": [SEARCH]}, tags.tokenizer), deadline_s=0.05, wait_s=0.5)
    assert trajectory.stop_reason is StopReason.DEADLINE
    assert [segment.kind for segment in trajectory.segments] == ["prompt", "action", "observation"]


def test_a_sampler_that_hangs_is_bounded_by_the_waiting_limit_alone(tags):
    async def main():
        setting = tags.setting(Hanging({"q/0": [SEARCH]}, tags.tokenizer), wait_s=0.1)
        return await asyncio.wait_for(run_trajectory(QUESTION, trajectory_id="q/0", **setting), timeout=60)

    assert asyncio.run(main()).stop_reason is StopReason.DEADLINE


class Queueing(ScriptedSampler):
    """Lets a rollout wait before its turn."""

    async def sample(self, request):
        await asyncio.sleep(0.3)
        return await super().sample(request)


@pytest.mark.parametrize("limits", [{"deadline_s": FOREVER, "wait_s": 0.1}, {"wait_s": 0.1}])
def test_who_waited_too_long_for_its_last_turn_is_invalid(tags, limits):
    """Nothing suspends the rollout after that turn."""
    trajectory = rollout(tags, Queueing({"q/0": [ANSWER]}, tags.tokenizer), **limits)
    assert (trajectory.stop_reason, trajectory.answer) == (StopReason.DEADLINE, None)


def test_a_sampler_that_claims_more_time_than_passed_buys_none_to_wait(tags):
    """A minute for each token is claimed."""

    async def main():
        time, clock = asyncio.get_running_loop().time, Clock(Limits(deadline_s=FOREVER, wait_s=FOREVER))
        async with clock.waiting:
            before, end = time(), clock.waiting.when()
            completion = await clock.sample(
                tags.sampler({"q/0": [ANSWER]}, token_s=60.0),
                SampleRequest("q/0", 0, (5,), 50, 1.0, StopConditions(), 0),
            )
            assert completion.seconds >= 60.0
            assert end <= clock.waiting.when() <= end + time() - before

    asyncio.run(main())


class Writing(ScriptedSampler):
    """Writes for a while, and says for how long."""

    async def sample(self, request):
        loop = asyncio.get_running_loop()
        began = loop.time()
        completion = await super().sample(request)
        await asyncio.sleep(0.3)
        object.__setattr__(completion, "seconds", loop.time() - began)
        return completion


def test_writing_is_not_waiting(tags):
    trajectory = rollout(tags, Writing({"q/0": [SEARCH, ANSWER]}, tags.tokenizer), deadline_s=FOREVER, wait_s=0.5)
    assert trajectory.stop_reason is StopReason.ANSWERED
    unlimited = rollout(tags, Writing({"q/0": [SEARCH, ANSWER]}, tags.tokenizer), wait_s=0.5)
    assert unlimited.stop_reason is StopReason.ANSWERED


@pytest.fixture
def tiny(tags):
    """The same stage for the tiny policy, and its setting on a sampler with so many slots."""
    policy = load_policy("tiny")
    stage = replace(tags, tokenizer=policy.tokenizer, renderer=TagRenderer(policy.tokenizer))
    return lambda slots, **limits: stage.setting(TorchSampler(policy, slots=slots), max_total_tokens=400, **limits)


def test_a_full_queue_makes_the_rollout_invalid_and_is_never_scored(tiny):
    """One slot, held by a trajectory that is not released."""
    setting = tiny(1, deadline_s=0.05, wait_s=0.1)

    async def main():
        await setting["sampler"].sample(SampleRequest("other", 0, (5, 9), 1, 1.0, StopConditions(), 0))
        return await Roller(**setting).group(QUESTION, size=2, reward=AnswerReward(), key="g", refills=0)

    group = asyncio.run(main())
    assert group.outcomes == (Invalid(StopReason.DEADLINE, "The rollout waited for more than 0.1 s."),) * 2
    assert all(trajectory.num_action_tokens == 0 for trajectory in group.trajectories)


def test_the_torch_sampler_ends_a_policy_that_is_too_slow(tiny):
    """Its first pass takes longer than a nanosecond, so a first token is all that there is time for."""
    setting = tiny(4, deadline_s=1e-9, wait_s=FOREVER)
    group = asyncio.run(Roller(**setting).group(QUESTION, size=2, reward=AnswerReward(), key="g"))
    assert group.outcomes == (Scored(0.0, {"exact_match": 0.0}),) * 2
    assert [t.stop_reason for t in group.trajectories] == [StopReason.MAX_TIME] * 2
    assert [t.num_action_tokens for t in group.trajectories] == [1, 1]


def test_who_states_one_limit_waits_as_long_as_it_writes():
    assert Limits(deadline_s=3.0).waiting_s == 3.0
    assert Limits(deadline_s=3.0, wait_s=5.0).waiting_s == 5.0
    assert Limits(wait_s=5.0).waiting_s == 5.0
    assert Limits().waiting_s is None
    with pytest.raises(ConfigError, match="wait_s is 0"):
        Limits(wait_s=0)
