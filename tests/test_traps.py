"""Mistakes that published training code makes, each with a test by its name. `test_trap_...` elsewhere are such too."""

import asyncio
import itertools
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import fields
from functools import partial
from typing import Any

import pytest
import torch
from tests.doubles.engines import ScriptedVLLM
from tests.doubles.learners import learner_of
from tests.doubles.scripted import ScriptedSampler
from tools.tiny.tokenizer import tiny_tokenizer
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from evoseek.config.registry import KINDS, find
from evoseek.credit import (
    gae,
    group_advantages,
    leave_one_out_advantages,
    raw_advantages,
    whiten,
    whitened_advantages,
)
from evoseek.errors import ConfigError
from evoseek.learner.logprobs import LogprobModel
from evoseek.loss.base import LossFn
from evoseek.loss.clipped import ClippedLoss, SequenceLoss
from evoseek.loss.likelihood import ReinforceLoss
from evoseek.models.load import load_policy
from evoseek.protocols import RewardFn, Sampler
from evoseek.renderers.tags import TagRenderer
from evoseek.reward.functions import AnswerReward
from evoseek.reward.judge import parse_verdict
from evoseek.rollout.environments import SolverEnv
from evoseek.rollout.limits import Limits
from evoseek.rollout.prompts import load_prompts
from evoseek.rollout.roller import Roller
from evoseek.samplers.torch.sampler import TorchSampler
from evoseek.samplers.vllm.sampler import VLLMSampler
from evoseek.samplers.vllm.server import Link
from evoseek.systems.dspo import Signal, group_signal
from evoseek.training.update import GroupUpdate
from evoseek.types import (
    Completion,
    Invalid,
    Question,
    SampleRequest,
    Scored,
    Segment,
    StopReason,
    TrainingSample,
    Trajectory,
    TrajectoryGroup,
)
from evoseek_tinker.policy import TinkerPolicy
from evoseek_tinker.sampler import TinkerSampler
from evoseek_tinker.sdk import NewModel, RemoteModel
from evoseek_tinker.testing import ScriptedTinker

QUESTION = Question("q", "who is the mayor of Kalo ?", ("Meri",))
DOWN = Invalid(StopReason.TOOL_FAILED, "the engine is down")


def group_of(key: str, *outcomes: Scored | Invalid) -> TrajectoryGroup:
    """Trajectories of two action tokens, whose ids tell the members apart."""
    trajectories = tuple(
        Trajectory(
            id=f"{key}/{index}",
            question=QUESTION,
            role="solver",
            segments=(Segment("prompt", (1, 2)), Segment("action", (3, 10 + index), (-0.5, -0.25))),
            actions=(),
            tool_results=(),
            stop_reason=outcome.reason if isinstance(outcome, Invalid) else StopReason.ANSWERED,
        )
        for index, outcome in enumerate(outcomes)
    )
    return TrajectoryGroup(key, trajectories, outcomes)


def rewards_of(group: TrajectoryGroup) -> list[float | None]:
    return [outcome.reward if isinstance(outcome, Scored) else None for outcome in group.outcomes]


def samples_of(group: TrajectoryGroup, **options: str) -> list[TrainingSample]:
    return GroupUpdate(None, partial(group_advantages, **options), seed=0).samples([group])


class TestTrap1AFailureIsNoReward:
    """A failed search, judge or engine that counts as reward 0 pays, in self-play, whoever profits from an outage."""

    GROUP = group_of("q", Scored(1.0), DOWN, Scored(0.0), Scored(0.0))

    def test_out_of_the_baseline(self) -> None:
        """Rewards 1, 1, 0, 0 whose second is invalid; with the 1 it would be 1/2, with a 0 for it 3/4 and -1/4."""
        advantages = group_advantages(rewards_of(self.GROUP), ["q"] * 4, scale="none")
        assert advantages == [pytest.approx(2 / 3), None, pytest.approx(-1 / 3), pytest.approx(-1 / 3)]

    def test_out_of_the_loss(self) -> None:
        samples = samples_of(self.GROUP, scale="none")
        assert [sample.token_ids[-1] for sample in samples] == [10, 12, 13]
        assert [sample.advantages[-1] for sample in samples] == pytest.approx([2 / 3, -1 / 3, -1 / 3])

    def test_in_every_credit_function(self) -> None:
        rewards = rewards_of(self.GROUP)
        for advantages in (
            leave_one_out_advantages(rewards, ["q"] * 4),
            raw_advantages(rewards),
            whitened_advantages(rewards),
        ):
            assert [advantage is None for advantage in advantages] == [False, True, False, False]
        assert group_signal([1.0, None, 1.0]) is Signal.ALL_RIGHT
        assert group_signal([1.0, None, None]) is Signal.TOO_FEW_VALID


class TestTrap4IncorrectContainsCorrect:
    """A judge that cannot be reached or understood has not said `wrong`: the rollout is Invalid, not a reward of 0."""

    def test_a_verdict_is_read_strictly_and_what_cannot_be_read_leaves_the_group(self) -> None:
        replies = {"k/0": "Verdict: correct", "k/1": "Not correct, or is it?", "k/2": "Incorrect.", "k/3": "incorrect"}

        async def judge(trajectory: Trajectory) -> Scored:
            return Scored(float(parse_verdict(replies[trajectory.id[:3]])))

        group = roll_out(Slow(lambda _: 0), judge)
        assert isinstance(group.outcomes[1], Invalid)
        assert group.outcomes[1].reason is StopReason.REWARD_FAILED
        assert rewards_of(group) == [1.0, None, 0.0, 0.0]
        advantages = group_advantages(rewards_of(group), ["k"] * 4, scale="none")
        assert advantages == [pytest.approx(2 / 3), None, pytest.approx(-1 / 3), pytest.approx(-1 / 3)]


class Slow(ScriptedSampler):
    """Answers after as many turns of the event loop as `delay` says for the trajectory."""

    def __init__(self, delay: Callable[[str], int]) -> None:
        super().__init__(lambda _: "<answer> Meri </answer>", tiny_tokenizer())
        self.delay = delay
        self.finished: list[str] = []

    async def sample(self, request: SampleRequest) -> Completion:
        for _ in range(self.delay(request.trajectory_id)):
            await asyncio.sleep(0)
        self.finished.append(request.trajectory_id)
        return await super().sample(request)


def roll_out(sampler: Slow, reward: RewardFn) -> TrajectoryGroup:
    renderer = TagRenderer(tiny_tokenizer())
    roller = Roller(SolverEnv([], load_prompts("tiny"), renderer.format), renderer, sampler, Limits())
    return asyncio.run(roller.group(QUESTION, size=4, reward=reward, key="k", refills=0))


class TestTrap8GroupsAreBoundByIdNotByPosition:
    """A batch that was sorted, interleaved or finished out of order still compares each rollout with its own group."""

    REWARDS = (("a/0", 1.0), ("a/1", 0.0), ("a/2", 0.5), ("b/0", 3.0), ("b/1", 1.0), ("c/0", 7.0))

    @pytest.mark.parametrize("credit", [group_advantages, leave_one_out_advantages])
    def test_shuffled_and_interleaved_members_keep_their_advantage(self, credit: Callable) -> None:
        def by_id(members: Sequence[tuple[str, float]]) -> dict[str, float]:
            ids, rewards = zip(*members, strict=True)
            return dict(zip(ids, credit(rewards, [name[0] for name in ids]), strict=True))

        expected = by_id(self.REWARDS)
        for seed in range(20):
            assert by_id(random.Random(seed).sample(self.REWARDS, len(self.REWARDS))) == expected

    @pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
    def test_members_that_finish_in_any_order_keep_their_outcome(self, order: tuple[int, ...]) -> None:
        async def reward(trajectory: Trajectory) -> Scored:
            return Scored(float(trajectory.id.rpartition("/")[2]))

        sampler = Slow(lambda trajectory_id: 3 * order.index(int(trajectory_id[-1])))
        group = roll_out(sampler, reward)
        assert sampler.finished == [f"k/{index}" for index in order]
        assert [trajectory.id for trajectory in group.trajectories] == ["k/0", "k/1", "k/2", "k/3"]
        assert group.outcomes == (Scored(0.0), Scored(1.0), Scored(2.0), Scored(3.0))


Sampling = Callable[..., AbstractAsyncContextManager[tuple[Sampler, TagRenderer]]]
LIMITED_S = 25.0
QUICK = 20  # tokens; all other rollouts take longer than LIMITED_S, at a second a token


@asynccontextmanager
async def embedded() -> AsyncGenerator[tuple[Sampler, TagRenderer]]:
    """Each pass takes a second."""
    policy = load_policy("tiny")
    sampler = TorchSampler(policy, slots=8, max_length=600, clock=itertools.count().__next__)
    yield sampler, TagRenderer(policy.tokenizer)


@asynccontextmanager
async def served(**settings: float) -> AsyncGenerator[tuple[Sampler, TagRenderer]]:
    """Every other turn that the server is asked for is right, and the rest are long: with random numbers of its own, it
    never writes the same again."""
    policy, texts = load_policy("tiny"), itertools.cycle(("<answer> Meri </answer>", "Kalo " * 80))
    scripted = ScriptedVLLM(ScriptedSampler(lambda _: next(texts), policy.tokenizer, logprob=-0.5))
    scripted.token_s = 1.0
    async with scripted.serving() as url:
        own = VLLMSampler.Settings(name="own", urls=(url,), **settings)
        yield VLLMSampler(policy, [Link(url, own)], max_length=600), TagRenderer(policy.tokenizer)


@asynccontextmanager
async def at_a_service() -> AsyncGenerator[tuple[Sampler, TagRenderer]]:
    remote = RemoteModel(ScriptedTinker(token_s=1.0), NewModel("tiny", 2, 0), api_key="tml-secret")
    policy = TinkerPolicy.over(remote, "tiny", "policy")
    yield TinkerSampler(policy, max_length=600), TagRenderer(policy.tokenizer)


SAMPLERS: dict[str, Sampling] = {
    "torch": embedded,
    "vllm": served,
    "tinker": at_a_service,
}
SECONDS = {"timeout_s": True}
"""The settings of samplers that are seconds, and whether they limit a turn."""
SEARCHES, ANSWER = ("<search> mayor </search>",) * 9, "<answer> Meri </answer>"
LIMITS: dict[str, tuple[Sequence[str], dict[str, Any]]] = {
    "max_turns": (SEARCHES, {"max_turns": 2}),
    "max_tool_calls": (SEARCHES, {"max_tool_calls": 1}),
    "max_tokens_per_turn": (["Kalo " * 80], {"max_tokens_per_turn": 9}),
    "max_total_tokens": (["Kalo " * 999], {"max_total_tokens": 200}),
    "deadline_s": (["Kalo " * 80], {"deadline_s": LIMITED_S}),
    "wait_s": (["Kalo " * 80], {"wait_s": LIMITED_S}),
    "final_answer": (SEARCHES, {"max_tool_calls": 1, "final_answer": "Answer now."}),
    "max_malformed": (["Kalo"] * 9, {"max_malformed": 1}),
}
"""For each limit the turns of a policy that exceeds it."""


def seconds_of(sampler: str) -> list[str]:
    """The settings of a sampler that are seconds."""
    return [name for name in find("sampler", sampler).Settings.model_fields if name.endswith("_s")]


class TestTrap11WhatThePolicyMakesLongIsScored:
    """If what the policy makes too long or too slow is dropped, or drawn again until it is short, the quick rollouts
    are left: a policy that is slow where it is wrong scores 1.0 instead of .5."""

    def test_every_sampler_and_every_limit_has_its_case(self) -> None:
        assert set(SAMPLERS) == {*KINDS["sampler"].parts, *KINDS["sampler"].packaged}
        assert set(LIMITS) == {limit.name for limit in fields(Limits)}
        assert set(SECONDS) == {name for sampler in SAMPLERS for name in seconds_of(sampler)}

    @pytest.mark.parametrize(
        ("sampler", "limit"),
        [
            (sampler, limit)
            for sampler in SAMPLERS
            for limit in ("deadline_s", "wait_s", *filter(SECONDS.get, seconds_of(sampler)))
        ],
    )
    def test_a_limit_in_seconds_leaves_the_mean_of_a_policy_as_it_is(
        self, sampler: str, limit: str, in_no_time: Callable[[Any], TrajectoryGroup]
    ) -> None:
        unlimited = in_no_time(quick_ones(SAMPLERS[sampler]()))
        assert {outcome.reward for outcome in unlimited.outcomes if isinstance(outcome, Scored)} == {0.0, 1.0}
        own = {limit: LIMITED_S} if limit in seconds_of(sampler) else {}
        limited = quick_ones(SAMPLERS[sampler](**own), **({} if own else {limit: LIMITED_S}))
        if (sampler, limit) == ("tinker", "deadline_s"):
            with pytest.raises(ConfigError, match="slow writing cannot be told from waiting"):
                in_no_time(limited)
            return
        group = in_no_time(limited)
        assert (sorted(rewards_of(group)), group.replaced) == (sorted(rewards_of(unlimited)), ())
        late = [trajectory.stop_reason is StopReason.MAX_TIME for trajectory in group.trajectories]
        assert any(late) is (limit == "deadline_s")

    @pytest.mark.parametrize("limit", LIMITS)
    def test_who_exceeds_a_limit_is_scored_beside_the_others(
        self, limit: str, in_no_time: Callable[[Any], TrajectoryGroup]
    ) -> None:
        texts, limits = LIMITS[limit]
        script = {f"k/{index}": texts if index % 2 else [ANSWER] for index in range(4)}
        sampler = ScriptedSampler(script, tiny_tokenizer(), token_s=1.0)
        env, renderer = SolverEnv([], load_prompts("tiny"), "tags"), TagRenderer(tiny_tokenizer())
        roller = Roller(env, renderer, sampler, Limits(**{"max_total_tokens": 600, **limits}))
        group = in_no_time(roller.group(QUESTION, size=4, reward=AnswerReward(), key="k"))
        assert (rewards_of(group), group.replaced) == ([1.0, 0.0, 1.0, 0.0], ())


async def quick_ones(
    sampling: AbstractAsyncContextManager[tuple[Sampler, TagRenderer]], **limits: Any
) -> TrajectoryGroup:
    """A group in which quick rollouts are right."""

    async def quick(trajectory: Trajectory) -> Scored:
        return Scored(float(trajectory.num_action_tokens <= QUICK))

    async with sampling as (sampler, renderer):
        env = SolverEnv([], load_prompts("tiny"), renderer.format)
        own = Limits(max_total_tokens=600, max_tokens_per_turn=96, **limits)
        return await Roller(env, renderer, sampler, own).group(QUESTION, size=8, reward=quick, key="k")


@pytest.fixture
def model() -> PreTrainedModel:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=23,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
    )
    return Qwen2ForCausalLM(config).eval()


class TestTrap9AStepWithoutVariance:
    """All groups of a step agree within themselves: the step is skipped and counted. No hang, no division by zero."""

    GROUPS = (
        group_of("right", *[Scored(1.0)] * 3),
        group_of("wrong", *[Scored(0.0)] * 3),
        group_of("tenths", *[Scored(0.1)] * 3),
        group_of("failed", Scored(1.0), DOWN, DOWN),
    )

    def test_advantages_are_exactly_zero(self) -> None:
        for group in self.GROUPS:
            for scale in ("std", "none"):
                for sample in samples_of(group, scale=scale):
                    assert sample.advantages == (0.0,) * 4
        assert whiten([[0.1, 0.1], [0.1]]) == [[0.0, 0.0], [0.0]]
        assert gae([0.0, 0.0], [0.0, 0.0], gamma=1.0, lam=1.0) == ([0.0, 0.0], [0.0, 0.0])

    @pytest.mark.parametrize("loss", [ClippedLoss(), SequenceLoss(), ReinforceLoss()], ids=lambda loss: str(loss))
    def test_the_learner_skips_and_counts_the_step(self, model: PreTrainedModel, loss: LossFn) -> None:
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        learner = learner_of(LogprobModel(model), loss=loss, learning_rate=0.1)
        samples = [sample for group in self.GROUPS for sample in samples_of(group)]
        for skipped in (1, 2):
            metrics = learner.update(samples)
            assert metrics["learner/skipped_no_signal"] == skipped
            assert metrics["learner/samples_without_gradient"] == len(samples) == 10
            assert "loss" not in metrics
        assert learner.step == 0
        assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())

    def test_one_group_with_a_signal_is_enough_for_a_step(self, model: PreTrainedModel) -> None:
        learner = learner_of(LogprobModel(model), loss=SequenceLoss(), learning_rate=0.1)
        groups = (*self.GROUPS, group_of("mixed", Scored(1.0), Scored(0.0)))
        metrics = learner.update([sample for group in groups for sample in samples_of(group)])
        assert learner.step == 1
        assert metrics["learner/skipped_no_signal"] == 0
        assert metrics["grad_norm"] > 0.0
