from collections.abc import Callable

import pytest
import torch

from evoseek.errors import TrainingError
from evoseek.loss.aggregate import count_totals
from evoseek.loss.base import LossInputs
from evoseek.loss.clipped import ClippedLoss
from evoseek.loss.entropy import WithEntropy
from evoseek.types import TrainingSample

MASK = torch.tensor([[True, True, False], [True, False, False]])


def test_the_bonus_is_the_mean_entropy_of_the_action_tokens(make_inputs: Callable[..., LossInputs]) -> None:
    entropies = torch.tensor([[1.0, 2.0, 7.0], [4.0, 7.0, 7.0]], requires_grad=True)
    weights = torch.tensor([1.0, 0.5])
    inputs = make_inputs(torch.zeros(2, 3, requires_grad=True), MASK, entropies=entropies, weights=weights)
    result = WithEntropy(ClippedLoss(), 0.3)(inputs, count_totals(MASK))
    result.loss.backward()
    assert result.loss.item() == pytest.approx(-0.3 * (1 + 2 + 0.5 * 4) / 3)
    torch.testing.assert_close(entropies.grad, torch.tensor([[-0.1, -0.1, 0.0], [-0.05, 0.0, 0.0]]))
    assert "clip_ratio/region_mean" in result.metrics


def test_entropies_without_a_gradient_are_refused(make_inputs: Callable[..., LossInputs]) -> None:
    inputs = make_inputs(torch.zeros(2, 3, requires_grad=True), MASK)
    with pytest.raises(TrainingError, match="entropy_gradient=True"):
        WithEntropy(ClippedLoss(), 0.3)(inputs, count_totals(MASK))


def test_a_sample_without_advantage_still_contributes() -> None:
    loss = WithEntropy(ClippedLoss(), 0.3)
    assert loss.contributes(TrainingSample((1, 2), (False, True), (0.0, -1.0), (0.0, 0.0)))
    assert not loss.contributes(TrainingSample((1, 2), (False, True), (0.0, -1.0), (0.0, 1.0), weight=0.0))
