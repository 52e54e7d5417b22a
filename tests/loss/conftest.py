"""Inputs of losses, from logprobs and what a test wants to say about the rest."""

from collections.abc import Callable

import pytest
import torch

from evoseek.loss.base import LossInputs


@pytest.fixture(scope="session")
def make_inputs() -> Callable[..., LossInputs]:
    """`make_inputs(logprobs, mask, **others)`: weights 1, sampler and old policy agree with the logprobs."""

    def make(logprobs: torch.Tensor, mask: torch.Tensor, **others: torch.Tensor) -> LossInputs:
        rollout_logprobs = others.pop("rollout_logprobs", logprobs.detach())
        fields = {
            "rollout_logprobs": rollout_logprobs,
            "old_logprobs": rollout_logprobs,
            "advantages": torch.zeros_like(logprobs),
            "weights": torch.ones(len(logprobs), dtype=logprobs.dtype),
            "entropies": torch.zeros_like(logprobs),
        }
        return LossInputs(logprobs=logprobs, loss_mask=mask, **{**fields, **others})

    return make
