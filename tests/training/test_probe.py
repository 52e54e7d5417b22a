"""The probe tells a sampler that has the learner's weights from one that has not."""

import asyncio

import pytest
import torch

from evoseek.assembly.agent import Agent
from evoseek.assembly.sources import load_settings
from evoseek.errors import TrainingError
from evoseek.learner.logprobs import LogprobModel, with_scores
from evoseek.models.load import load_policy
from evoseek.training.probe import EXACT, QUESTIONS, TOKENS, WeightsProbe


def probe(settings=None):
    """Of a tiny policy and a copy of it that a learner may train."""
    settings = settings or load_settings()
    sampled, trained = load_policy("tiny"), load_policy("tiny")
    agent = Agent.of(settings, sampled)

    def score(samples):
        return with_scores(
            "old_logprobs", samples, forward=LogprobModel(trained.model, temperature=1.0), token_budget=512
        )

    return WeightsProbe([(agent.solver([]), score)]), agent, trained


def test_equal_weights_differ_by_rounding():
    check, _, _ = probe()
    assert asyncio.run(check(3))["sampling/probe_difference"] < 1e-4


def test_a_sampler_that_missed_new_weights_is_seen_and_one_that_takes_them_is_not():
    check, agent, trained = probe()
    with torch.no_grad():
        for parameter in trained.model.parameters():
            parameter.mul_(1.05)
    assert asyncio.run(check(1))["sampling/probe_difference"] > 0.01
    agent.sampler.update_weights(1, trained.model.state_dict())
    assert asyncio.run(check(2))["sampling/probe_difference"] < 1e-4


def test_of_several_policies_each_is_compared():
    (sound, _, _), (late, _, trained) = probe(), probe()
    with torch.no_grad():
        for parameter in trained.model.parameters():
            parameter.mul_(1.05)
    both = WeightsProbe([*sound.policies, *late.policies])
    assert asyncio.run(both(1)) == asyncio.run(late(1))
    with pytest.raises(TrainingError, match="does not compute the trained policy"):
        asyncio.run(WeightsProbe(both.policies, EXACT)(1))


def test_it_samples_a_few_tokens_with_the_rollouts_temperature_and_gives_its_slot_back():
    check, agent, _ = probe(load_settings(options={"rollout.temperature": 1.0, "sampler.slots": 1}))
    asyncio.run(check(1))
    asyncio.run(check(2))  # another trajectory: the only slot is free again
    assert agent.sampler.stats.action_tokens <= 2 * len(QUESTIONS) * TOKENS
