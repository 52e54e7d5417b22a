from collections.abc import Callable

import pytest
import torch

from evoseek.loss.base import LossInputs, Totals
from evoseek.loss.cross_entropy import CrossEntropyLoss
from evoseek.types import TrainingSample


def test_weighted_mean_of_minus_logprob_over_masked_tokens(make_inputs: Callable[..., LossInputs]) -> None:
    logprobs = torch.tensor([[-1.0, -2.0], [-4.0, -9.0]])
    mask = torch.tensor([[True, True], [True, False]])
    inputs = make_inputs(logprobs, mask, weights=torch.tensor([1.0, 0.5]))
    loss = CrossEntropyLoss()(inputs, Totals(tokens=3, sequences=2)).loss
    assert loss.item() == pytest.approx((1 + 2 + 0.5 * 4) / 3)


def test_samples_without_advantages_contribute() -> None:
    sample = TrainingSample((1, 2), (False, True), (0.0, 0.0), (0.0, 0.0))
    assert CrossEntropyLoss().contributes(sample)
