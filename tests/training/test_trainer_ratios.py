"""Ratios before the first update are exactly 1, however the forward pass rounds in its rows."""

import math
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.doubles.learners import learner_of
from torch import nn

from evoseek.assembly.sources import load_settings
from evoseek.learner.distributed import ALONE
from evoseek.loss.base import LossInputs
from evoseek.loss.clipped import ClippedLoss, SequenceLoss
from evoseek.loss.terms import WithTerms
from evoseek.training.trainer import Objective, Trainer
from evoseek.training.update import TwoRoleUpdate
from evoseek.types import Question, Scored, Segment, StopReason, Trajectory, TrajectoryGroup


class Words(nn.Module):
    """A policy of eight words without context."""

    def __init__(self):
        super().__init__()
        self.logits = nn.Parameter(torch.linspace(-1.0, 1.0, 8))


class RowForward:
    """A forward pass that rounds by its rows: each logprob is off by what else the micro-batch holds."""

    packing_limit = 0

    def __init__(self):
        self.model = Words()

    def __call__(self, batch):
        error = 1e-2 * math.sin(float(batch.token_ids.sum()) + 10 * len(batch.weights))
        logprobs = (self.model.logits.log_softmax(-1)[batch.token_ids] + error).masked_fill(~batch.loss_mask, 0.0)
        old = logprobs.detach() if batch.old_logprobs is None else batch.old_logprobs
        parts = (batch.rollout_logprobs, old, batch.advantages, batch.loss_mask, batch.weights)
        return LossInputs(logprobs, *parts, torch.zeros_like(logprobs), batch.ref_logprobs)


class Recorded:
    """A loss that keeps how far each pass is from the old logprobs, and from the reference's."""

    def __init__(self, loss):
        self.loss, self.apart = loss, []
        self.level = getattr(loss, "level", "token")

    def contributes(self, sample):
        return self.loss.contributes(sample)

    def __call__(self, inputs, totals):
        compared = [inputs.old_logprobs] + ([inputs.ref_logprobs] if inputs.ref_logprobs is not None else [])
        self.apart += [float((inputs.logprobs - other).detach()[inputs.loss_mask].abs().max()) for other in compared]
        return self.loss(inputs, totals)


def group(number, lengths, rewards):
    """A group of rollouts of these numbers of actions after a prompt of its own."""

    def member(index, length):
        ids = tuple((number + index + place) % 8 for place in range(length))
        segments = (Segment("prompt", (number % 8, 1)), Segment("action", ids, (-2.0,) * length))
        return Trajectory(f"{number}/{index}", Question("q", "?", ()), "solver", segments, (), (), StopReason.ANSWERED)

    members = tuple(member(index, length) for index, length in enumerate(lengths))
    return TrajectoryGroup(str(number), members, tuple(map(Scored, rewards)))


def trainer_of(loss, learning_rate=0.0, **options):
    """The trainer of `RowForward`, where sampler and learner compute differently."""
    found = load_settings(options={"learner.bf16": True} | options)
    learner = learner_of(RowForward(), loss=loss, learning_rate=learning_rate, token_budget=12, weight_decay=0.0)
    policy = SimpleNamespace(active=nullcontext)
    return Trainer(
        found, policy, policy, learner, lambda rewards, _: [2.0 * r - 1.0 for r in rewards], None, ALONE, "p"
    )


GROUPS = st.lists(
    st.lists(st.tuples(st.integers(1, 6), st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=4),
    min_size=1,
    max_size=7,
)


def made(groups):
    return [group(number, *zip(*members, strict=True)) for number, members in enumerate(groups)]


@settings(deadline=None, max_examples=60)
@given(GROUPS, st.integers(1, 5), st.sampled_from(["none", "truncate", "mask"]))
def test_before_the_first_update_every_ratio_is_exactly_1(groups, mini_batches, importance):
    """Also where rollouts without a gradient (a reward of 0.5) are not in the pass. No weight moves here, so that each
    pass is one before the first update."""
    loss = Recorded(SequenceLoss())
    options = {"algorithm.mini_batches": mini_batches, "algorithm.importance": importance}
    update = trainer_of(loss, **options).update()
    update(1, made(groups))
    assert set(loss.apart) <= {0.0}
    assert bool(loss.apart) == any(reward != 0.5 for members in groups for _, reward in members)


@settings(deadline=None, max_examples=30)
@given(GROUPS, st.integers(1, 4))
def test_so_are_those_of_two_roles_in_the_same_steps(groups, mini_batches):
    loss = Recorded(ClippedLoss())
    trainer = trainer_of(loss, **{"algorithm.mini_batches": mini_batches})
    role = trainer.update()
    TwoRoleUpdate(trainer.learner, {"a": role, "b": role}, seed=0, mini_batches=mini_batches)(
        1, {"a": made(groups), "b": made(groups[::-1])}
    )
    assert set(loss.apart) <= {0.0}


class Everything(Recorded):
    """A loss that passes every sample, whatever its advantages."""

    def contributes(self, sample):
        return True


def test_a_role_with_a_loss_of_its_own_is_scored_in_the_rows_of_that_loss():
    """The learner's own loss would leave out the rollouts without an advantage."""
    trainer, loss = trainer_of(Recorded(SequenceLoss())), Everything(ClippedLoss())
    objective = Objective(loss, trainer.credit, temperature=1.0)
    trainer.update_by(objective, mini_batches=2)(1, made([[(3, 1.0), (4, 0.5), (2, 0.0)]] * 4))
    assert len(loss.apart) >= 2
    assert set(loss.apart) == {0.0}


def test_a_reference_that_is_the_policy_itself_has_the_same_logprobs_in_every_mini_batch(monkeypatch):
    loss = Recorded(WithTerms(ClippedLoss(), kl=0.1))
    trainer = trainer_of(loss, **{"algorithm.mini_batches": 3, "algorithm.kl_coefficient": 0.1})
    monkeypatch.setattr(Trainer, "_reference", lambda self: self._scores("ref_logprobs", self.learner))
    trainer.update()(1, made([[(3, 1.0), (4, 0.0), (2, 0.5)]] * 5))
    assert len(loss.apart) >= 6
    assert set(loss.apart) == {0.0}


def test_after_an_update_ratios_are_to_the_policy_before_the_step():
    """The first mini-batch's are 1; those of the later ones are not, since the weights moved."""
    loss = Recorded(SequenceLoss())
    trainer = trainer_of(loss, learning_rate=0.1, **{"algorithm.mini_batches": 3})
    trainer.learner.token_budget = 1000
    trainer.update()(1, made([[(3, 1.0), (4, 0.0)]] * 3))
    first, *later = loss.apart
    assert first == 0.0 < min(later)


def test_what_is_scored_ahead_has_the_budget_of_the_learner_after_memory_ran_out():
    loss = Recorded(SequenceLoss())
    trainer = trainer_of(loss, **{"algorithm.mini_batches": 2})
    update = trainer.update()
    trainer.learner.token_budget //= 2
    update(1, made([[(6, 1.0), (5, 0.0), (4, 1.0)]] * 4))
    assert set(loss.apart) == {0.0}


@pytest.mark.parametrize("mini_batches", [1, 2])
def test_tokens_that_the_sampler_did_not_write_have_a_ratio_of_1_too(mini_batches):
    loss = Recorded(ClippedLoss())
    trainer = trainer_of(loss, **{"algorithm.mini_batches": mini_batches, "algorithm.mask_observations": False})
    trainer.update()(1, made([[(3, 1.0), (4, 0.0)]] * 4))
    assert set(loss.apart) == {0.0}
