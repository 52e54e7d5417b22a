"""A rollout of several samples counts as one: its reward, its baseline and its weight in the loss."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from evoseek.credit import group_advantages
from evoseek.learner.learner import StepBatch
from evoseek.loss.base import LossInputs
from evoseek.loss.clipped import ClippedLoss, SequenceLoss
from evoseek.loss.terms import WithTerms
from evoseek.training.update import GroupUpdate
from evoseek.types import Question, Scored, Segment, StopReason, Trajectory, TrajectoryGroup

QUESTION = Question("q", "who is the mayor of Kalo ?", ("Meri",))
MEAN_ONLY = partial(group_advantages, scale="none")


def action(*ids, **options):
    return Segment("action", ids, (-0.5,) * len(ids), **options)


def prompt(*ids, cause=""):
    return Segment("prompt", ids, cause=cause)


ONE = (prompt(1, 2), action(3, 4, 5, 6))
THREE = (
    *(prompt(1, 2), action(3, 4), Segment("observation", (7,)), action(5)),
    *(prompt(1, 2, 3, 4, 8, cause="again"), action(6), prompt(9, cause="other"), action(3, 4, 5, 6)),
)


def rollout(number, segments):
    return Trajectory(f"k/{number}", QUESTION, "solver", segments, (), (), StopReason.ANSWERED)


def group(rewards, *segments):
    trajectories = tuple(rollout(number, own) for number, own in enumerate(segments))
    return TrajectoryGroup("k", trajectories, tuple(map(Scored, rewards)))


class Holder:
    """A learner of which only the loss is needed."""

    def __init__(self, loss):
        self.loss = loss


def update(loss=None):
    return GroupUpdate(Holder(loss or ClippedLoss()), MEAN_ONLY, seed=0)


def test_a_rollout_is_cut_at_its_prompts_and_nothing_is_an_action_twice():
    (sample, side, other) = rollout(0, THREE).branches
    assert sample.token_ids == (1, 2, 3, 4, 7, 5)
    assert side.token_ids == (1, 2, 3, 4, 8, 6)
    assert side.loss_mask == (False,) * 5 + (True,)
    assert other.loss_mask == (False, True, True, True, True)
    assert sum(one.num_action_tokens for one in (sample, side, other)) == rollout(0, THREE).num_action_tokens


def test_a_rollout_of_three_samples_enters_the_baseline_once():
    """Rewards 1, 1, 1, 0: the mean is 3/4 however many samples the last has; by samples it would be 1/2."""
    samples = update().samples([group([1.0, 1.0, 1.0, 0.0], ONE, ONE, ONE, THREE)])
    assert [sample.id for sample in samples] == ["k/0", "k/1", "k/2", *["k/3"] * 3]
    assert [max(sample.advantages, key=abs) for sample in samples] == [0.25, 0.25, 0.25, -0.75, -0.75, -0.75]


def gradient(loss, samples):
    """Of the sum over the action tokens' logprobs, by rollout."""
    batch = StepBatch.of(samples, loss)
    found = {}
    for sample in batch.samples:  # each in a micro-batch of its own
        mask = torch.tensor([sample.loss_mask])
        logprobs = torch.full(mask.shape, -0.5).masked_fill(~mask, 0.0).requires_grad_()
        record = logprobs.detach()
        advantages, weights = torch.tensor([sample.advantages]), torch.tensor([sample.weight])
        inputs = LossInputs(logprobs * 1.0, record, record, advantages, mask, weights, record)
        loss(inputs, batch.totals).loss.backward()
        found[sample.id] = found.get(sample.id, 0.0) - float(logprobs.grad.sum())
    return found


@pytest.mark.parametrize("loss", [ClippedLoss(), ClippedLoss(aggregate="sequence-sum"), SequenceLoss()])
@pytest.mark.parametrize("aggregate", ["token-mean", "sequence-mean-token-mean"])
def test_cutting_a_rollout_into_samples_does_not_change_its_weight(loss, aggregate):
    """Eight tokens in one sample or in three: the same gradient, also of the others in the step."""
    if isinstance(loss, ClippedLoss) and loss.aggregate == "token-mean":
        loss = replace(loss, aggregate=aggregate)
    whole = (prompt(1, 2), action(3, 4, 5, 6, 3, 4, 5, 6))
    rewards = [1.0, 0.0]
    one, three = (gradient(loss, update(loss).samples([group(rewards, ONE, last)])) for last in (whole, THREE))
    assert three == pytest.approx(one)


def test_a_step_counts_rollouts_not_samples():
    samples = update().samples([group([1.0, 0.0], ONE, THREE)])
    batch = StepBatch.of(samples, ClippedLoss())
    assert (batch.totals.sequences, batch.totals.tokens) == (2, 12)
    assert batch.metrics == {"learner/samples": 4.0, "learner/samples_without_gradient": 0.0}


def test_a_critic_that_averages_tokens_weighs_them_equally_beside_a_loss_of_sequences():
    """The weights of branches belong to a loss: the critic learns from the same samples with its own average."""
    samples = update(SequenceLoss()).samples([group([1.0, 0.0], ONE, THREE)])
    weights = [[one.weight for one in StepBatch.of(samples, loss).samples] for loss in (SequenceLoss(), ClippedLoss())]
    assert weights == [[1.0, 3 / 8, 1 / 8, 4 / 8], [1.0] * 4]
    assert [one.weight for one in StepBatch.of(samples, WithTerms(SequenceLoss(), kl=0.1)).samples] == weights[0]


def test_by_hand_each_token_of_a_group_of_two_has_the_weight_of_one_rollout_of_two():
    """Rewards 1 and 0, advantages 1/2 and -1/2; the first has 4 tokens, the second 8 in three samples of 3, 1 and 4.

    By tokens each has 1/12 of its advantage; by sequences the first 1/2 x 1/4, the second 1/2 x 1/8."""
    samples = update().samples([group([1.0, 0.0], ONE, THREE)])
    by_tokens = gradient(ClippedLoss(), samples)
    assert by_tokens == pytest.approx({"k/0": 4 * 0.5 / 12, "k/1": -8 * 0.5 / 12})
    by_sequences = gradient(ClippedLoss(aggregate="sequence-mean-token-mean"), samples)
    assert by_sequences == pytest.approx({"k/0": 0.5 / 2, "k/1": -0.5 / 2})
