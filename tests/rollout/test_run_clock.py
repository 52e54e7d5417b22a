"""A rollout's two times: what its policy writes is scored however slow it is, and waiting is nobody's fault."""

import asyncio
from dataclasses import replace

import pytest
from tests.doubles.scripted import ScriptedSampler

from evoseek.errors import ConfigError
from evoseek.models.load import load_policy
from evoseek.renderers.tags import TagRenderer
from evoseek.reward.functions import AnswerReward
from evoseek.rollout.limits import Clock, Limits
from evoseek.rollout.roller import Roller
from evoseek.rollout.run import run_trajectory
from evoseek.samplers.torch.sampler import TorchSampler
from evoseek.types import Completion, Invalid, Question, SampleRequest, Scored, StopConditions, StopReason

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


class Queueing(ScriptedSampler):
    """Lets a rollout wait before its turn, and says for how long."""

    async def sample(self, request):
        await asyncio.sleep(0.3)
        return replace(await super().sample(request), waited=0.3)


@pytest.mark.parametrize("limits", [{"deadline_s": FOREVER, "wait_s": 0.1}, {"wait_s": 0.1}])
def test_who_waited_too_long_for_its_last_turn_is_invalid(tags, limits, in_no_time):
    """Nothing suspends the rollout after that turn."""
    setting = tags.setting(Queueing({"q/0": [ANSWER]}, tags.tokenizer), **limits)
    trajectory = in_no_time(run_trajectory(QUESTION, trajectory_id="q/0", **setting))
    assert (trajectory.stop_reason, trajectory.answer) == (StopReason.DEADLINE, None)


def test_a_sampler_that_claims_to_have_waited_longer_than_it_took_costs_no_more_than_that(tags):
    async def main():
        time, clock = asyncio.get_running_loop().time, Clock(Limits(wait_s=FOREVER))
        sampler = tags.sampler(lambda request: Completion((5,), (0.0,), "stop", waited=FOREVER))
        async with clock.waiting:
            end, request = clock.waiting.when(), SampleRequest("q/0", 0, (5,), 50, 1.0, StopConditions(), 0)
            await clock.sample(sampler, request)
            assert end == clock.waiting.when() > time()

    asyncio.run(main())


class Writing(ScriptedSampler):
    """Writes for a while. `seconds` is what it says about that."""

    seconds = None

    async def sample(self, request):
        await asyncio.sleep(0.3)
        return replace(await super().sample(request), seconds=self.seconds)


@pytest.mark.parametrize(
    ("seconds", "limits"),
    [(0.3, {"deadline_s": FOREVER, "wait_s": 0.1}), (0.3, {"wait_s": 0.1}), (None, {"wait_s": 0.1})],
)
def test_what_is_not_known_to_be_waiting_is_not_counted_as_that(tags, seconds, limits, in_no_time):
    """Each turn takes longer than may be waited in all."""
    sampler = Writing({"q/0": [SEARCH, ANSWER]}, tags.tokenizer)
    sampler.seconds = seconds
    trajectory = in_no_time(run_trajectory(QUESTION, trajectory_id="q/0", **tags.setting(sampler, **limits)))
    assert trajectory.stop_reason is StopReason.ANSWERED


def test_a_limit_on_the_policys_own_time_is_refused_for_a_sampler_that_does_not_report_it(tags):
    with pytest.raises(ConfigError, match=r"Writing does not report them.* Leave deadline_s out"):
        rollout(tags, Writing({"q/0": [ANSWER]}, tags.tokenizer), deadline_s=FOREVER)


@pytest.fixture
def tiny(tags):
    """The same stage for the tiny policy, and its setting on a sampler with so many slots."""
    policy = load_policy("tiny")
    stage = replace(tags, tokenizer=policy.tokenizer, renderer=TagRenderer(policy.tokenizer))
    return lambda slots, **limits: stage.setting(TorchSampler(policy, slots=slots), max_total_tokens=400, **limits)


def test_a_full_queue_makes_the_rollout_invalid_and_is_never_scored(tiny):
    """One slot, held by another trajectory for longer than may be waited."""
    setting = tiny(1, deadline_s=0.05, wait_s=0.1)

    async def main():
        sampler = setting["sampler"]
        await sampler.sample(SampleRequest("other", 0, (5, 9), 1, 1.0, StopConditions(), 0))
        asyncio.get_running_loop().call_later(0.2, sampler.release, "other")
        return await Roller(**setting).group(QUESTION, size=1, reward=AnswerReward(), key="g", refills=0)

    group = asyncio.run(main())
    assert group.outcomes == (Invalid(StopReason.DEADLINE, "The rollout waited for more than 0.1 s."),)


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
