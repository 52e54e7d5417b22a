import math
from collections.abc import Callable

import pytest
import torch

from evoseek.loss.aggregate import count_totals
from evoseek.loss.base import LossInputs
from evoseek.loss.clipped import ClippedLoss
from evoseek.loss.importance import WithImportance, importance_weights
from evoseek.loss.reinforce import ReinforceLoss
from evoseek.loss.sequence import SequenceLoss
from evoseek.types import TrainingSample

# Ratios of three tokens and one off the mask; of two tokens and two off the mask.
RATIOS = torch.tensor([[4.0, 0.5, 1.0, 9.0], [0.25, 0.5, 9.0, 9.0]], dtype=torch.float64)
MASK = torch.tensor([[True, True, True, False], [True, True, False, False]])
ZEROS = torch.zeros(2, 4, dtype=torch.float64)


@pytest.mark.parametrize(
    ("outside", "low", "expected", "out"),
    [
        ("truncate", 0.0, [2.0, 0.5, 1.0, 0.25, 0.5], [1, 0, 0, 0, 0]),
        ("truncate", 0.4, [2.0, 0.5, 1.0, 0.4, 0.5], [1, 0, 0, 1, 0]),
        ("mask", 0.0, [0.0, 0.5, 1.0, 0.25, 0.5], [1, 0, 0, 0, 0]),
        ("mask", 0.4, [0.0, 0.5, 1.0, 0.0, 0.5], [1, 0, 0, 1, 0]),
    ],
)
def test_token_weights_by_hand(outside: str, low: float, expected: list, out: list) -> None:
    weights, is_outside = importance_weights(
        RATIOS.log(), ZEROS, MASK, level="token", outside=outside, low=low, high=2.0
    )
    assert weights[MASK].tolist() == pytest.approx(expected)
    assert is_outside[MASK].int().tolist() == out
    assert weights[~MASK].tolist() == [1.0] * 3


@pytest.mark.parametrize(
    ("outside", "low", "expected"),
    [("truncate", 0.0, (2.0, 0.125)), ("mask", 0.2, (2.0, 0.0)), ("truncate", 0.5, (2.0, 0.5))],
)
def test_sequence_weights_are_the_products_of_the_action_tokens_ratios(
    outside: str, low: float, expected: tuple[float, float]
) -> None:
    """4 * 0.5 * 1 = 2 and 0.25 * 0.5 = 0.125."""
    weights, _ = importance_weights(RATIOS.log(), ZEROS, MASK, level="sequence", outside=outside, low=low, high=3.0)
    for row, value in enumerate(expected):
        assert weights[row].tolist() == pytest.approx([value] * 4)


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("outside", ["truncate", "mask"])
def test_the_same_logprobs_give_exactly_one(level: str, outside: str) -> None:
    logprobs = -torch.rand(3, 50)
    mask = torch.rand(3, 50) < 0.7
    weights, _ = importance_weights(logprobs, logprobs, mask, level=level, outside=outside, low=0.5, high=2.0)
    assert torch.equal(weights, torch.ones(3, 50))


@pytest.mark.parametrize("outside", ["truncate", "mask"])
def test_long_sequences_do_not_overflow(outside: str) -> None:
    old = torch.tensor([[0.5], [-0.5]]).expand(2, 5000)
    mask = torch.ones(2, 5000, dtype=torch.bool)
    weights, _ = importance_weights(
        old, torch.zeros(2, 5000), mask, level="sequence", outside=outside, low=0.0, high=2.0
    )
    assert weights[:, 0].tolist() == pytest.approx([2.0 if outside == "truncate" else 0.0, 0.0])


def inputs_of(make_inputs: Callable[..., LossInputs], ratios: torch.Tensor) -> LossInputs:
    logprobs = torch.full((2, 4), -1.0, dtype=torch.float64).requires_grad_()
    old = logprobs.detach().clone().requires_grad_()
    return make_inputs(
        logprobs,
        MASK,
        rollout_logprobs=old.detach() - ratios.log(),
        old_logprobs=old,
        advantages=torch.tensor([[1.0], [-2.0]], dtype=torch.float64).expand(2, 4),
    )


def test_as_a_loss_function_it_weighs_each_token_and_counts_what_it_did(make_inputs: Callable[..., LossInputs]) -> None:
    inputs = inputs_of(make_inputs, RATIOS)
    result = WithImportance(ClippedLoss(aggregate="sequence-sum"))(inputs, count_totals(MASK))
    result.loss.backward()
    assert result.loss.item() == pytest.approx(-((2 + 0.5 + 1) - 2 * (0.25 + 0.5)) / 2)
    assert inputs.logprobs.grad.tolist() == [[-1.0, -0.25, -0.5, 0.0], [0.25, 0.5, 0.0, 0.0]]
    assert result.metrics["sampling/importance_sampling_ratio/deviation"].item() == pytest.approx(
        (1 + 0.5 + 0 + 0.75 + 0.5) / 5
    )
    assert result.metrics["sampling/importance_sampling_ratio/outside_frac"].item() == pytest.approx(1 / 5)
    assert "clip_ratio/region_mean" in result.metrics


def test_reinforce_with_weights_is_the_importance_weighted_policy_gradient(
    make_inputs: Callable[..., LossInputs],
) -> None:
    inputs = inputs_of(make_inputs, RATIOS)
    WithImportance(ReinforceLoss(), high=math.inf)(inputs, count_totals(MASK)).loss.backward()
    torch.testing.assert_close(inputs.logprobs.grad, -(RATIOS * inputs.advantages / 2).masked_fill(~MASK, 0.0))
    assert inputs.old_logprobs.grad is None


def test_a_sequence_loss_takes_its_sequences_weights(make_inputs: Callable[..., LossInputs]) -> None:
    """Both sequence ratios are 1; the weights are min(2, 1.5) and 0.125."""
    loss = WithImportance(SequenceLoss(), level="sequence", high=1.5)
    result = loss(inputs_of(make_inputs, RATIOS), count_totals(MASK))
    assert result.loss.item() == pytest.approx(-(1.5 * 1 - 0.125 * 2) / 2)


def test_it_contributes_where_the_other_loss_does() -> None:
    loss = WithImportance(ClippedLoss())
    assert loss.contributes(TrainingSample((1, 2), (False, True), (0.0, -1.0), (0.0, 1.0)))
    assert not loss.contributes(TrainingSample((1, 2), (False, True), (0.0, -1.0), (0.0, 0.0)))
