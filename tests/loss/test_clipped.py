import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evoseek.loss.base import LossInputs, count_totals
from evoseek.loss.clipped import ClippedLoss, token_ratio
from evoseek.types import TrainingSample

CASES = json.loads((Path(__file__).parents[1] / "fixtures" / "policy_losses.json").read_text())["cases"]
AGGREGATES = ["token-mean", "sequence-mean-token-mean", "sequence-sum", 7]


def clipped_loss(logprobs, old_logprobs, advantages, mask, *, totals=None, **settings):
    weights, entropies = torch.ones(len(logprobs), dtype=logprobs.dtype), torch.zeros_like(logprobs)
    inputs = LossInputs(logprobs, old_logprobs, old_logprobs, advantages, mask, weights, entropies)
    return ClippedLoss(**settings)(inputs, totals or count_totals(mask))


def tensors(case: dict) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    logprobs = torch.tensor(case["logprobs"], dtype=torch.float64, requires_grad=True)
    rollout_logprobs = torch.tensor(case["rollout_logprobs"], dtype=torch.float64)
    advantages = torch.tensor(case["advantages"], dtype=torch.float64).unsqueeze(-1).expand_as(logprobs)
    return logprobs, rollout_logprobs, advantages, torch.tensor(case["loss_mask"]).bool()


@pytest.mark.parametrize("variant", ["ppo_clip_token_mean", "ppo_clip_asymmetric"])
@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradient_equal_the_reference_in_float64(case: dict, variant: str) -> None:
    expected = case[variant]
    logprobs, *rest = tensors(case)
    result = clipped_loss(logprobs, *rest, clip_low=expected["clip_low"], clip_high=expected["clip_high"])
    result.loss.backward()
    assert result.loss.item() == pytest.approx(expected["loss"], abs=1e-9)
    torch.testing.assert_close(logprobs.grad, torch.tensor(expected["grad"], dtype=torch.float64), atol=1e-9, rtol=0)


@pytest.mark.parametrize("aggregate", AGGREGATES, ids=str)
@pytest.mark.parametrize("case", CASES[:5])
def test_rows_apart_with_the_whole_batchs_totals_add_up_to_the_batch(case: dict, aggregate: object) -> None:
    logprobs, *rest = tensors(case)
    options = {"clip_low": 0.2, "clip_high": 0.2, "aggregate": aggregate}
    whole = clipped_loss(logprobs, *rest, **options)
    (expected,) = torch.autograd.grad(whole.loss, logprobs)
    totals = count_totals(rest[-1])
    parts = [
        clipped_loss(*(t[row : row + 1] for t in (logprobs, *rest)), **options, totals=totals)
        for row in range(len(logprobs))
    ]
    sum(part.loss for part in parts).backward()
    torch.testing.assert_close(logprobs.grad, expected, atol=1e-12, rtol=0)
    for name, value in whole.metrics.items():
        assert sum(part.metrics[name] for part in parts).item() == pytest.approx(value.item())


def test_metrics_by_hand() -> None:
    """Ratios 0.5, 2, 2, 1 with clip 0.2: cut off are the low one with A < 0 and one high one with A > 0, of 4."""
    logprobs = torch.tensor([[0.5, 2.0, 2.0, 1.0]]).log()
    advantages = torch.tensor([[-1.0, 1.0, -1.0, 1.0]])
    result = clipped_loss(
        logprobs, torch.zeros(1, 4), advantages, torch.ones(1, 4, dtype=torch.bool), clip_low=0.2, clip_high=0.2
    )
    assert {name: value.item() for name, value in result.metrics.items()} == {
        "clip_ratio/low_mean": 0.25,
        "clip_ratio/high_mean": 0.25,
        "clip_ratio/region_mean": 0.5,
    }
    # min(.5 * -1, .8 * -1) + min(2, 1.2) + min(-2, -1.2) + 1 = -.8 + 1.2 - 2 + 1
    assert result.loss.item() == pytest.approx(0.6 / 4)


@given(st.data())
def test_gradient_is_exactly_zero_off_the_mask_whatever_stands_there(data: st.DataObject) -> None:
    shape = (2, 6)
    mask = torch.tensor(data.draw(st.lists(st.booleans(), min_size=12, max_size=12))).reshape(shape)
    anything = st.sampled_from([0.0, -1.5, 1e30, -1e30, math.inf, -math.inf, math.nan])
    junk = torch.tensor(data.draw(st.lists(anything, min_size=12, max_size=12))).reshape(shape)
    values = torch.linspace(-3.0, -0.1, 12).reshape(shape)
    logprobs = torch.where(mask, values, junk).requires_grad_()
    advantages = torch.where(mask, values + 1.0, junk)
    result = clipped_loss(logprobs, values * 1.1, advantages, mask, clip_low=0.2, clip_high=0.2)
    result.loss.backward()
    assert logprobs.grad is not None
    assert torch.equal(logprobs.grad[~mask], torch.zeros(int((~mask).sum())))
    assert math.isfinite(result.loss.item())


def test_trap_an_empty_mask_gives_zero_and_not_a_division_by_zero() -> None:
    zeros = torch.zeros(2, 3)
    for aggregate in AGGREGATES:
        result = clipped_loss(zeros, zeros, zeros, zeros.bool(), clip_low=0.2, clip_high=0.2, aggregate=aggregate)
        assert result.loss.item() == 0.0


def test_as_a_loss_function_a_weight_multiplies_the_advantages(make_inputs: Callable[..., LossInputs]) -> None:
    logprobs, rollout_logprobs, advantages, mask = tensors(CASES[0])
    inputs = make_inputs(
        logprobs,
        mask,
        rollout_logprobs=rollout_logprobs,
        advantages=advantages,
        weights=torch.full((4,), 0.5),
    )
    half = ClippedLoss(0.2, 0.2)(inputs, count_totals(mask)).loss
    assert half.item() == pytest.approx(0.5 * CASES[0]["ppo_clip_token_mean"]["loss"])


def test_as_a_loss_function_the_ratio_is_to_the_old_policy_not_to_the_sampler(
    make_inputs: Callable[..., LossInputs],
) -> None:
    logprobs, old_logprobs, advantages, mask = tensors(CASES[0])
    inputs = make_inputs(
        logprobs, mask, rollout_logprobs=old_logprobs - 1.0, old_logprobs=old_logprobs, advantages=advantages
    )
    loss = ClippedLoss(0.2, 0.2)(inputs, count_totals(mask)).loss
    assert loss.item() == pytest.approx(CASES[0]["ppo_clip_token_mean"]["loss"])


def test_only_samples_with_an_advantage_and_a_weight_contribute() -> None:
    def sample(advantage: float, weight: float) -> TrainingSample:
        return TrainingSample((1, 2), (False, True), (0.0, -1.0), (0.0, advantage), weight)

    assert ClippedLoss().contributes(sample(-1.0, 1.0))
    assert not ClippedLoss().contributes(sample(0.0, 1.0))
    assert not ClippedLoss().contributes(sample(1.0, 0.0))


def test_ratio_is_one_off_the_mask_and_its_gradient_survives_infinities_there() -> None:
    logprobs = torch.tensor([[0.0, -1.0, math.inf, math.nan]], requires_grad=True)
    ratio = token_ratio(
        logprobs, torch.tensor([[0.0, -1.0 - math.log(2), 0.0, 0.0]]), torch.tensor([[1, 1, 0, 0]]).bool()
    )
    torch.testing.assert_close(ratio, torch.tensor([[1.0, 2.0, 1.0, 1.0]]))
    ratio.sum().backward()
    torch.testing.assert_close(logprobs.grad, torch.tensor([[1.0, 2.0, 0.0, 0.0]]))
