"""PPO's arithmetic with scripted rollouts, a critic that says what it is told, and learners that record."""

from dataclasses import replace
from itertools import compress

import pytest

from evoseek.credit import CriticCredit
from evoseek.training.update import PPOUpdate

TEXTS = {"q0/0": "meri", "q0/1": "kalo", "q1/0": "kalo", "q1/1": "kalo"}


def predict(samples):
    """0.5 at every action token."""
    return [replace(s, values=tuple(0.5 if acts else 0.0 for acts in s.loss_mask)) for s in samples]


def actions(sample, values):
    return list(compress(values, sample.loss_mask))


def update(recorder, critic, groups, step=1, transforms=(), **options):
    own = {
        "learner": recorder,
        "critic": critic,
        "credit": CriticCredit(),
        "transforms": [*transforms, predict],
        "seed": 0,
    }
    return PPOUpdate(**own, **options)(step, groups)


@pytest.fixture
def critic(recorder):
    return type(recorder)()


def test_with_gamma_and_lambda_1_returns_are_the_reward_and_advantages_are_whitened(groups_of, recorder, critic):
    """Every token's advantage is its rollout's reward minus 0.5, whitened over all tokens of the batch."""
    update(recorder, critic, groups_of(TEXTS))
    (batch,), (same,) = recorder.batches, critic.batches
    assert batch == same
    rewards = [1.0, 0.0, 0.0, 0.0]
    tokens = [reward - 0.5 for s, reward in zip(batch, rewards, strict=True) for _ in range(sum(s.loss_mask))]
    mean = sum(tokens) / len(tokens)
    std = (sum((t - mean) ** 2 for t in tokens) / (len(tokens) - 1)) ** 0.5
    for sample, reward in zip(batch, rewards, strict=True):
        assert actions(sample, sample.returns) == pytest.approx([reward] * sum(sample.loss_mask))
        assert actions(sample, sample.advantages) == pytest.approx(
            [(reward - 0.5 - mean) / std] * sum(sample.loss_mask)
        )
        assert {a for a, acts in zip(sample.advantages, sample.loss_mask, strict=True) if not acts} == {0.0}


def test_a_penalty_is_taken_off_each_token(groups_of, recorder, critic):
    """k1 is -0.5 - (-0.7) = 0.2 at every token, times 0.1."""

    def complete(samples):
        return [replace(s, ref_logprobs=tuple(-0.7 if acts else 0.0 for acts in s.loss_mask)) for s in samples]

    update(recorder, critic, groups_of(TEXTS), transforms=[complete], kl_coefficient=0.1)
    first = recorder.batches[0][0]
    n = sum(first.loss_mask)
    assert actions(first, first.returns) == pytest.approx([1.0 - 0.02 * left for left in range(n, 0, -1)])


def test_the_critic_learns_alone_at_first(groups_of, recorder, critic):
    groups = groups_of(TEXTS)
    metrics = update(recorder, critic, groups, step=1, critic_warmup_steps=1, mini_batches=2)
    assert metrics.keys() == {"critic/loss", "critic/learner/skipped_no_signal"}
    assert (len(recorder.batches), len(critic.batches)) == (0, 2)
    metrics = update(recorder, critic, groups, step=2, critic_warmup_steps=1, mini_batches=2)
    assert (len(recorder.batches), len(critic.batches)) == (2, 4)
    assert metrics["loss"] == 0.375


def test_failed_rollouts_are_no_part_of_it(groups_of, recorder, critic):
    texts = {key: text for key, text in TEXTS.items() if key != "q1/0"}
    update(recorder, critic, groups_of(texts))
    assert len(recorder.batches[0]) == 3
