import math

import pytest
import torch

from evoseek.loss.ratio import sequence_ratio, token_ratio


def test_ratio_is_one_off_the_mask_and_its_gradient_survives_infinities_there() -> None:
    logprobs = torch.tensor([[0.0, -1.0, math.inf, math.nan]], requires_grad=True)
    ratio = token_ratio(
        logprobs, torch.tensor([[0.0, -1.0 - math.log(2), 0.0, 0.0]]), torch.tensor([[1, 1, 0, 0]]).bool()
    )
    torch.testing.assert_close(ratio, torch.tensor([[1.0, 2.0, 1.0, 1.0]]))
    ratio.sum().backward()
    torch.testing.assert_close(logprobs.grad, torch.tensor([[1.0, 2.0, 0.0, 0.0]]))


def test_sequence_ratio_is_the_geometric_mean_of_the_masked_tokens() -> None:
    ratios = torch.tensor([[2.0, 8.0, 5.0], [3.0, 1.0, 1.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True, False], [False, False, False]])
    logprobs = ratios.log().requires_grad_()
    ratio = sequence_ratio(logprobs, torch.zeros_like(ratios), mask)
    assert ratio.tolist() == pytest.approx([4.0, 1.0])
    ratio.sum().backward()
    torch.testing.assert_close(logprobs.grad, torch.tensor([[2.0, 2.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64))


def test_a_long_sequence_does_not_overflow() -> None:
    """20 000 tokens, each twice as likely as before: the product of the ratios is 2^20000, their mean is 2."""
    logprobs = torch.full((1, 20_000), math.log(2.0))
    mask = torch.ones(1, 20_000, dtype=torch.bool)
    assert sequence_ratio(logprobs, torch.zeros_like(logprobs), mask).item() == pytest.approx(2.0, rel=1e-4)
