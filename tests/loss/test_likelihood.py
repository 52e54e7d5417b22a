from collections.abc import Callable

import pytest
import torch
from tests.doubles.losses import count_totals

from evoseek.loss.base import LossInputs, Totals
from evoseek.loss.clipped import ClippedLoss
from evoseek.loss.likelihood import CrossEntropyLoss, ReinforceLoss
from evoseek.types import TrainingSample

LOGPROBS = torch.tensor([[-1.0, -2.0, -9.0], [-4.0, -0.5, -0.25]], dtype=torch.float64)
ADVANTAGES = torch.tensor([[1.0], [-2.0]], dtype=torch.float64)
MASK = torch.tensor([[True, True, False], [True, False, True]])


def loss_of(loss, logprobs, advantages):
    weights, entropies = torch.ones(len(logprobs), dtype=logprobs.dtype), torch.zeros_like(logprobs)
    inputs = LossInputs(logprobs, LOGPROBS, LOGPROBS, advantages, MASK, weights, entropies)
    return loss(inputs, count_totals(MASK)).loss


def test_sum_over_a_sequences_tokens_by_hand() -> None:
    """-(1 * (-1 - 2) - 2 * (-4 - 0.25)) / 2"""
    assert loss_of(ReinforceLoss(), LOGPROBS, ADVANTAGES).item() == pytest.approx(-(-3.0 + 8.5) / 2)
    assert loss_of(ReinforceLoss("token-mean"), LOGPROBS, ADVANTAGES).item() == pytest.approx(-5.5 / 4)


def test_on_policy_the_clipped_loss_has_the_same_gradient() -> None:
    logprobs = LOGPROBS.clone().requires_grad_()
    (plain,) = torch.autograd.grad(loss_of(ReinforceLoss(), logprobs, ADVANTAGES), logprobs)
    clipped = ClippedLoss(aggregate="sequence-sum")
    (expected,) = torch.autograd.grad(loss_of(clipped, logprobs, ADVANTAGES), logprobs)
    assert torch.equal(plain, expected)
    assert plain.tolist() == [[-0.5, -0.5, 0.0], [1.0, 0.0, 1.0]]


def test_off_the_mask_anything_may_stand() -> None:
    junk = LOGPROBS.masked_fill(~MASK, torch.inf).requires_grad_()
    loss = loss_of(ReinforceLoss(), junk, ADVANTAGES.expand(2, 3).masked_fill(~MASK, torch.nan))
    loss.backward()
    assert loss.item() == pytest.approx(-2.75)
    assert torch.equal(junk.grad[~MASK], torch.zeros(2, dtype=torch.float64))


def test_as_a_loss_function(make_inputs: Callable[..., LossInputs]) -> None:
    """It ignores what the sampler recorded; weight 0.5 halves the second sample."""
    inputs = make_inputs(
        LOGPROBS,
        MASK,
        rollout_logprobs=LOGPROBS - 5.0,
        advantages=ADVANTAGES.expand(2, 3),
        weights=torch.tensor([1.0, 0.5]),
    )
    assert ReinforceLoss()(inputs, Totals(tokens=8, sequences=4)).loss.item() == pytest.approx(-(-3.0 + 4.25) / 4)
    assert ReinforceLoss().contributes(TrainingSample((1, 2), (False, True), (0.0, -1.0), (0.0, 1.0)))
    assert not ReinforceLoss().contributes(TrainingSample((1, 2), (False, True), (0.0, -1.0), (0.0, 0.0)))


def test_weighted_mean_of_minus_logprob_over_masked_tokens(make_inputs: Callable[..., LossInputs]) -> None:
    logprobs = torch.tensor([[-1.0, -2.0], [-4.0, -9.0]])
    mask = torch.tensor([[True, True], [True, False]])
    inputs = make_inputs(logprobs, mask, weights=torch.tensor([1.0, 0.5]))
    loss = CrossEntropyLoss()(inputs, Totals(tokens=3, sequences=2)).loss
    assert loss.item() == pytest.approx((1 + 2 + 0.5 * 4) / 3)


def test_samples_without_advantages_contribute() -> None:
    sample = TrainingSample((1, 2), (False, True), (0.0, 0.0), (0.0, 0.0))
    assert CrossEntropyLoss().contributes(sample)
