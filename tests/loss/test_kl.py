import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evoseek.errors import TrainingError
from evoseek.loss.aggregate import aggregate_tokens, count_totals
from evoseek.loss.base import LossInputs
from evoseek.loss.clipped import ClippedLoss
from evoseek.loss.kl import WithKL, kl_k1, kl_k3
from evoseek.types import TrainingSample

CASES = json.loads((Path(__file__).parents[1] / "fixtures" / "policy_losses.json").read_text())["cases"]
ESTIMATORS = {"k1": kl_k1, "k3": kl_k3}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("case", CASES)
def test_token_mean_equals_the_reference(case: dict, name: str) -> None:
    logprobs, ref_logprobs = (
        torch.tensor(case[key], dtype=torch.float64, requires_grad=True) for key in ("logprobs", "ref_logprobs")
    )
    mask = torch.tensor(case["loss_mask"]).bool()
    mean = aggregate_tokens(ESTIMATORS[name](logprobs, ref_logprobs), mask, "token-mean")
    assert mean.item() == pytest.approx(case[f"kl_{name}_token_mean"], abs=1e-9)


def test_gradients_by_hand() -> None:
    """Of k1 it is 1 wherever the policy is: no pull at all. Of k3 it is 1 - ref / policy: here 1 - 2 and 1 - 1/2."""
    policy = torch.tensor([0.2, 0.4], dtype=torch.float64).log().requires_grad_()
    ref = torch.tensor([0.4, 0.2], dtype=torch.float64).log()
    (k1,) = torch.autograd.grad(kl_k1(policy, ref).sum(), policy)
    (k3,) = torch.autograd.grad(kl_k3(policy, ref).sum(), policy)
    assert k1.tolist() == [1.0, 1.0]
    assert k3.tolist() == pytest.approx([-1.0, 0.5])


@given(st.lists(st.floats(0.05, 1.0), min_size=2, max_size=5), st.lists(st.floats(0.05, 1.0), min_size=5, max_size=5))
def test_both_estimate_the_same_divergence_without_bias(first: list, second: list) -> None:
    """Their expectation under the policy, over a whole small vocabulary, is the divergence itself."""
    policy = torch.tensor(first, dtype=torch.float64).log().log_softmax(0)
    ref = torch.tensor(second[: len(first)], dtype=torch.float64).log().log_softmax(0)
    exact = (policy.exp() * (policy - ref)).sum().item()
    for estimator in (kl_k1, kl_k3):
        assert (policy.exp() * estimator(policy, ref)).sum().item() == pytest.approx(exact, abs=1e-9)
    assert (kl_k3(policy, ref) >= -1e-12).all()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_added_to_a_loss(make_inputs: Callable[..., LossInputs], name: str) -> None:
    """A mask keeps infinities out; the weight multiplies the penalty and not the metric."""
    logprobs = torch.tensor([[-1.0, -2.0, -math.inf]], dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, True, False]])
    inputs = make_inputs(
        logprobs,
        mask,
        advantages=torch.tensor([[1.0, 1.0, 0.0]], dtype=torch.float64),
        weights=torch.tensor([0.5], dtype=torch.float64),
        ref_logprobs=torch.tensor([[-2.0, -1.0, math.inf]], dtype=torch.float64),
    )
    mean = {"k1": 0.0, "k3": (math.exp(-1) + math.exp(1) - 2) / 2}[name]
    result = WithKL(ClippedLoss(), 0.1, estimator=name)(inputs, count_totals(mask))
    result.loss.backward()
    assert result.loss.item() == pytest.approx(-0.5 + 0.1 * 0.5 * mean)
    assert result.metrics["kl"].item() == pytest.approx(mean)
    assert "clip_ratio/region_mean" in result.metrics
    assert logprobs.grad.isfinite().all()
    assert logprobs.grad[0, 2].item() == 0.0


def test_without_reference_logprobs_it_says_what_is_missing(make_inputs: Callable[..., LossInputs]) -> None:
    mask = torch.ones(1, 2, dtype=torch.bool)
    with pytest.raises(TrainingError, match="ref_logprobs"):
        WithKL(ClippedLoss(), 0.1)(make_inputs(torch.zeros(1, 2), mask), count_totals(mask))


def test_a_sample_without_advantage_still_contributes() -> None:
    loss = WithKL(ClippedLoss(), 0.1)
    assert loss.contributes(TrainingSample((1, 2), (False, True), (0.0, -1.0), (0.0, 0.0)))
    assert not loss.contributes(TrainingSample((1, 2), (False, True), (0.0, -1.0), (0.0, 1.0), weight=0.0))
