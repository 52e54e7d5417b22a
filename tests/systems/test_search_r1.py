"""The algorithm with scripted rollouts and a learner that records what it is given."""

import asyncio
import math

import pytest

from evoseek.env.prompts import load_prompts
from evoseek.env.solver import SolverEnv
from evoseek.policy.scripted import ScriptedSampler
from evoseek.policy.tags import TagRenderer
from evoseek.policy.tiny_tokenizer import tiny_tokenizer
from evoseek.reward.functions import AnswerReward
from evoseek.rollout.limits import Limits
from evoseek.rollout.record import TrajectoryWriter, read_trajectories
from evoseek.systems.search_r1 import SearchR1
from evoseek.types import Question

TOKENIZER = tiny_tokenizer()
QUESTIONS = [Question("q0", "what is kalo?", ("meri",)), Question("q1", "what is meri?", ("kalo",))]


class Sampler(ScriptedSampler):
    resets = 0

    def reset(self):
        self.resets += 1


class Recorder:
    def update(self, samples):
        self.samples = samples
        return {"loss": 0.25}


def step(tmp_path, texts, number=1, **options):
    script = {f"step-{number:06d}/{key}": [f"<answer> {text} </answer>"] for key, text in texts.items()}
    sampler, learner = Sampler(script, TOKENIZER, logprob=-0.5), Recorder()
    path = tmp_path / "trajectories.jsonl"
    system = SearchR1(
        questions=QUESTIONS,
        env=SolverEnv([], load_prompts("tiny")),
        renderer=TagRenderer(TOKENIZER),
        sampler=sampler,
        limits=Limits(),
        reward=AnswerReward(),
        learner=learner,
        trajectories=TrajectoryWriter(path, TOKENIZER.decode),
        seed=0,
        questions_per_step=2,
        group_size=options.pop("group_size", 2),
        **options,
    )
    return asyncio.run(system.step(number)), sampler, learner, list(read_trajectories(path))


ONE_RIGHT = {"q0/0": "meri", "q0/1": "kalo", "q1/0": "meri", "q1/1": "meri"}


def test_advantages_are_group_relative(tmp_path):
    """Rewards 1, 0 (mean 0.5, std 0.7071): +-0.7071; rewards 0, 0: no signal."""
    report, _, learner, _ = step(tmp_path, ONE_RIGHT)
    found = {}
    for sample in learner.samples:
        found.setdefault(sample.group.rsplit("/", 1)[1], []).append({a for a in sample.advantages if a} or {0.0})
    assert found["q1"] == [{0.0}, {0.0}]
    assert [values.pop() for values in found["q0"]] == pytest.approx([math.sqrt(0.5), -math.sqrt(0.5)], abs=1e-5)
    assert report.metrics["reward"] == 0.25
    assert report.metrics["loss"] == 0.25
    assert report.num_rollouts == 4


def test_scale_none_leaves_the_std_out(tmp_path):
    _, _, learner, _ = step(tmp_path, ONE_RIGHT, scale="none")
    assert {abs(value) for sample in learner.samples for value in sample.advantages} == {0.0, 0.5}


def test_trap_failed_rollouts_leave_the_loss_and_the_baseline(tmp_path):
    """Rewards [1, invalid, 0, 0] without std: 2/3, -, -1/3, -1/3."""
    texts = {"q0/0": "meri", "q0/2": "kalo", "q0/3": "kalo"} | {f"q1/{n}": "meri" for n in range(4)}
    report, _, learner, _ = step(tmp_path, texts, scale="none", group_size=4)
    values = [max(s.advantages, key=abs) for s in learner.samples if s.group.endswith("q0")]
    assert values == pytest.approx([2 / 3, -1 / 3, -1 / 3])
    assert len(report.failures) == 1
    assert report.metrics["rollout/invalid_frac"] == 1 / 8


def test_what_was_sampled_is_what_is_trained_on(tmp_path):
    _, sampler, learner, _ = step(tmp_path, ONE_RIGHT)
    given = {tuple(completion.token_ids) for completion in sampler.completions}
    for sample in learner.samples:
        actions = tuple(t for t, acts in zip(sample.token_ids, sample.loss_mask, strict=True) if acts)
        assert actions in given
        assert {p for p, acts in zip(sample.rollout_logprobs, sample.loss_mask, strict=True) if acts} == {-0.5}


def test_the_new_policy_is_published(tmp_path):
    report, sampler, _, _ = step(tmp_path, dict.fromkeys(ONE_RIGHT, "meri"), number=7)
    assert sampler.policy_version == 7
    assert sampler.resets == 1
    assert report.metrics["frac_reward_zero_std"] == 1.0


def test_every_rollout_is_recorded_under_its_id(tmp_path):
    _, _, _, records = step(tmp_path, ONE_RIGHT, number=12)
    assert sorted(record.trajectory.id for record in records) == [f"step-000012/{key}" for key in sorted(ONE_RIGHT)]
    assert {record.step for record in records} == {12}
