import math

import torch

from evoseek.loss.ratio import token_ratio


def test_ratio_is_one_off_the_mask_and_its_gradient_survives_infinities_there() -> None:
    logprobs = torch.tensor([[0.0, -1.0, math.inf, math.nan]], requires_grad=True)
    ratio = token_ratio(
        logprobs, torch.tensor([[0.0, -1.0 - math.log(2), 0.0, 0.0]]), torch.tensor([[1, 1, 0, 0]]).bool()
    )
    torch.testing.assert_close(ratio, torch.tensor([[1.0, 2.0, 1.0, 1.0]]))
    ratio.sum().backward()
    torch.testing.assert_close(logprobs.grad, torch.tensor([[1.0, 2.0, 0.0, 0.0]]))
