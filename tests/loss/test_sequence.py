import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from evoseek.loss.base import LossInputs, Totals, count_totals
from evoseek.loss.clipped import SequenceLoss, sequence_ratio
from evoseek.types import TrainingSample

CASES = json.loads((Path(__file__).parents[1] / "fixtures" / "policy_losses.json").read_text())["cases"]


def sequence_loss(logprobs, old_logprobs, advantages, mask, *, totals=None, **settings):
    weights, entropies = torch.ones(len(logprobs), dtype=logprobs.dtype), torch.zeros_like(logprobs)
    inputs = LossInputs(logprobs, old_logprobs, old_logprobs, advantages, mask, weights, entropies)
    return SequenceLoss(**settings)(inputs, totals or count_totals(mask))


def tensors(case: dict) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    logprobs = torch.tensor(case["logprobs"], dtype=torch.float64, requires_grad=True)
    rollout_logprobs = torch.tensor(case["rollout_logprobs"], dtype=torch.float64)
    advantages = torch.tensor(case["advantages"], dtype=torch.float64).unsqueeze(-1)
    return logprobs, rollout_logprobs, advantages, torch.tensor(case["loss_mask"]).bool()


@pytest.mark.parametrize("variant", ["gspo_sequence", "gspo_wide"])
@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradient_equal_the_reference_in_float64(case: dict, variant: str) -> None:
    expected = case[variant]
    logprobs, *rest = tensors(case)
    result = sequence_loss(logprobs, *rest, clip_low=expected["clip_low"], clip_high=expected["clip_high"])
    result.loss.backward()
    assert result.loss.item() == pytest.approx(expected["loss"], abs=1e-9)
    torch.testing.assert_close(logprobs.grad, torch.tensor(expected["grad"], dtype=torch.float64), atol=1e-9, rtol=0)


def test_metrics_and_loss_by_hand() -> None:
    """Sequence ratios 0.5 (A < 0), 2 (A > 0), 2 (A < 0) and 1: the first two are cut off by a clip of 0.2."""
    logprobs = torch.tensor([[0.25, 1.0], [4.0, 1.0], [2.0, 2.0], [1.0, 1.0]]).log()
    advantages = torch.tensor([[-1.0], [1.0], [-1.0], [3.0]])
    mask = torch.ones(4, 2, dtype=torch.bool)
    result = sequence_loss(logprobs, torch.zeros(4, 2), advantages, mask, clip_low=0.2, clip_high=0.2)
    assert {name: value.item() for name, value in result.metrics.items()} == {
        "clip_ratio/low_mean": 0.25,
        "clip_ratio/high_mean": 0.25,
        "clip_ratio/region_mean": 0.5,
    }
    assert result.loss.item() == pytest.approx(-(-0.8 + 1.2 - 2.0 + 3.0) / 4)


def test_observation_tokens_are_in_neither_the_mean_nor_the_gradient() -> None:
    """Whatever stands at them changes no bit."""
    logprobs, rollout_logprobs, advantages, mask = tensors(CASES[0])
    assert not mask.all()
    options = {"clip_low": 0.2, "clip_high": 0.2}
    clean = sequence_loss(logprobs, rollout_logprobs, advantages.expand_as(mask), mask, **options).loss
    (expected,) = torch.autograd.grad(clean, logprobs)
    for junk in (1e30, -math.inf, math.nan):
        dirty = torch.where(mask, logprobs.detach(), junk).requires_grad_()
        loss = sequence_loss(
            dirty, rollout_logprobs, torch.where(mask, advantages.expand_as(mask), junk), mask, **options
        ).loss
        loss.backward()
        assert torch.equal(loss, clean)
        assert torch.equal(dirty.grad, expected)
        assert torch.equal(dirty.grad[~mask], torch.zeros(int((~mask).sum()), dtype=torch.float64))


def test_long_sequences_do_not_overflow() -> None:
    logprobs = torch.full((2, 20_000), -0.5, requires_grad=True)
    mask = torch.ones(2, 20_000, dtype=torch.bool)
    result = sequence_loss(
        logprobs, logprobs.detach() - 0.5, torch.tensor([[1.0], [-1.0]]), mask, clip_low=0.2, clip_high=0.2
    )
    result.loss.backward()
    assert result.loss.item() == pytest.approx(-(1.2 - math.exp(0.5)) / 2, rel=1e-4)
    assert logprobs.grad.isfinite().all()


def test_trap_an_empty_mask_gives_zero_and_not_a_division_by_zero() -> None:
    zeros = torch.zeros(2, 3)
    assert sequence_loss(zeros, zeros, zeros, zeros.bool(), clip_low=0.2, clip_high=0.2).loss.item() == 0.0


def test_as_a_loss_function_with_weights_and_the_old_policys_ratio(make_inputs: Callable[..., LossInputs]) -> None:
    logprobs, old_logprobs, advantages, mask = tensors(CASES[0])
    inputs = make_inputs(
        logprobs,
        mask,
        rollout_logprobs=old_logprobs - 1.0,
        old_logprobs=old_logprobs,
        advantages=advantages.expand_as(mask),
        weights=torch.full((4,), 0.5),
    )
    loss = SequenceLoss(0.2, 0.2)(inputs, Totals(tokens=0, sequences=8)).loss
    assert loss.item() == pytest.approx(0.25 * CASES[0]["gspo_wide"]["loss"])


def test_only_samples_with_an_advantage_and_a_weight_contribute() -> None:
    def sample(advantage: float, weight: float) -> TrainingSample:
        return TrainingSample((1, 2), (False, True), (0.0, -1.0), (0.0, advantage), weight)

    assert SequenceLoss().contributes(sample(-1.0, 1.0))
    assert not SequenceLoss().contributes(sample(0.0, 1.0))
    assert not SequenceLoss().contributes(sample(1.0, 0.0))


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
