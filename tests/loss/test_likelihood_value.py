import math
from dataclasses import replace

import pytest
import torch
from tests.doubles.losses import count_totals

from evoseek.loss.base import ValueInputs
from evoseek.loss.likelihood import ValueLoss
from evoseek.types import TrainingSample

# One row of four tokens and one off the mask. Old values 0, clip 0.5, so predictions clip to [-0.5, 0.5]:
#   prediction 1.0, return 1: errors 0 and 0.25    -> moved past the clip towards the return: no gradient
#   prediction -1.0, return 1: errors 4 and 2.25   -> moved away: the full gradient
#   prediction 0.2, return 1: errors 0.64 twice    -> within the clip
#   prediction 2.0, return 0: errors 4 and 0.25    -> overshot: the full gradient
PREDICTIONS = torch.tensor([[1.0, -1.0, 0.2, 2.0, math.nan]], dtype=torch.float64)
RETURNS = torch.tensor([[1.0, 1.0, 1.0, 0.0, math.inf]], dtype=torch.float64)
VALUES = torch.zeros(1, 5, dtype=torch.float64)
MASK = torch.tensor([[True, True, True, True, False]])


def value_loss(predictions, values, returns, mask, *, clip):
    weights = torch.ones(len(predictions), dtype=predictions.dtype)
    return ValueLoss(clip)(ValueInputs(predictions, values, returns, mask, weights), count_totals(mask))


def test_loss_gradient_and_metrics_by_hand() -> None:
    predictions = PREDICTIONS.clone().requires_grad_()
    result = value_loss(predictions, VALUES, RETURNS, MASK, clip=0.5)
    result.loss.backward()
    assert result.loss.item() == pytest.approx(0.5 * (0.25 + 4 + 0.64 + 4) / 4)
    assert predictions.grad.flatten().tolist() == pytest.approx([0.0, -2.0 / 4, -0.8 / 4, 2.0 / 4, 0.0])
    assert {name: value.item() for name, value in result.metrics.items()} == pytest.approx(
        {
            "value/mean": 2.2 / 4,
            "returns/mean": 3.0 / 4,
            "value/squared_error": (0 + 4 + 0.64 + 4) / 4,
            "value/clip_frac": 1 / 4,
        }
    )


def test_an_infinite_clip_is_the_plain_squared_error() -> None:
    result = value_loss(PREDICTIONS, VALUES, RETURNS, MASK, clip=math.inf)
    assert result.loss.item() == pytest.approx(0.5 * 8.64 / 4)
    assert result.metrics["value/clip_frac"].item() == 0.0


def test_within_the_clip_nothing_is_clipped() -> None:
    """The gradient is v - R, and rounding of V + (v - V) is not taken for a clip."""
    random = torch.Generator().manual_seed(0)
    values, predictions = 0.3 * torch.randn(2, 1, 500, generator=random)
    predictions.requires_grad_()
    result = value_loss(predictions, values, torch.ones(1, 500), torch.ones(1, 500, dtype=torch.bool), clip=9.0)
    result.loss.backward()
    torch.testing.assert_close(predictions.grad, (predictions.detach() - 1.0) / 500)
    assert result.metrics["value/clip_frac"].item() == 0.0


def test_as_a_loss_function_a_weight_multiplies_the_error() -> None:
    inputs = ValueInputs(PREDICTIONS, VALUES, RETURNS, MASK, weights=torch.tensor([0.5], dtype=torch.float64))
    result = ValueLoss(clip=0.5)(inputs, count_totals(MASK))
    assert result.loss.item() == pytest.approx(0.25 * 8.89 / 4)
    assert result.metrics["returns/mean"].item() == pytest.approx(3.0 / 4)


def test_samples_with_returns_contribute_whatever_their_advantages() -> None:
    sample = TrainingSample((1, 2), (False, True), (0.0, -1.0), (0.0, 0.0), returns=(0.0, 0.0))
    assert ValueLoss().contributes(sample)
    assert not ValueLoss().contributes(replace(sample, weight=0.0))
    assert not ValueLoss().contributes(replace(sample, returns=None))
