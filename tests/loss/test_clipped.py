import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.doubles.losses import count_totals

from evoseek.loss.base import LossInputs, Totals
from evoseek.loss.clipped import ClippedLoss, SequenceLoss, sequence_ratio, token_ratio
from evoseek.types import TrainingSample

CASES = json.loads((Path(__file__).parents[1] / "fixtures" / "policy_losses.json").read_text())["cases"]
BOTH = pytest.mark.parametrize("kind", [ClippedLoss, SequenceLoss])


def loss_of(loss, logprobs, old_logprobs, advantages, mask, *, totals=None, weight=1.0, record=None):
    weights, entropies = torch.full((len(logprobs),), weight, dtype=logprobs.dtype), torch.zeros_like(logprobs)
    record = old_logprobs if record is None else record
    inputs = LossInputs(logprobs, record, old_logprobs, advantages.expand_as(logprobs), mask, weights, entropies)
    return loss(inputs, totals or count_totals(mask))


def tensors(case: dict) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    logprobs = torch.tensor(case["logprobs"], dtype=torch.float64, requires_grad=True)
    rollout_logprobs = torch.tensor(case["rollout_logprobs"], dtype=torch.float64)
    advantages = torch.tensor(case["advantages"], dtype=torch.float64).unsqueeze(-1)
    return logprobs, rollout_logprobs, advantages, torch.tensor(case["loss_mask"]).bool()


@pytest.mark.parametrize(
    ("kind", "variant"),
    [
        (ClippedLoss, "ppo_clip_token_mean"),
        (ClippedLoss, "ppo_clip_asymmetric"),
        (SequenceLoss, "gspo_sequence"),
        (SequenceLoss, "gspo_wide"),
    ],
)
@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradient_equal_the_reference_in_float64(case: dict, kind: type, variant: str) -> None:
    expected = case[variant]
    logprobs, *rest = tensors(case)
    result = loss_of(kind(expected["clip_low"], expected["clip_high"]), logprobs, *rest)
    result.loss.backward()
    assert result.loss.item() == pytest.approx(expected["loss"], abs=1e-9)
    torch.testing.assert_close(logprobs.grad, torch.tensor(expected["grad"], dtype=torch.float64), atol=1e-9, rtol=0)


@pytest.mark.parametrize(
    ("loss", "ratios", "advantages", "expected"),
    [
        # min(.5 * -1, .8 * -1) + min(2, 1.2) + min(-2, -1.2) + min(.5, .8) = -.8 + 1.2 - 2 + .5
        (ClippedLoss(0.2, 0.2), [[0.5, 2.0, 2.0, 0.5]], [[-1.0, 1.0, -1.0, 1.0]], 1.1 / 4),
        (
            SequenceLoss(0.2, 0.2),
            [[0.25, 1.0], [4.0, 1.0], [2.0, 2.0], [0.5, 0.5]],
            [[-1.0], [1.0], [-1.0], [3.0]],
            -(-0.8 + 1.2 - 2.0 + 1.5) / 4,
        ),
    ],
)
def test_metrics_and_loss_by_hand(loss, ratios: list, advantages: list, expected: float) -> None:
    """Ratios 0.5 (A < 0), 2 (A > 0), 2 (A < 0) and 0.5 (A > 0), of tokens or sequences: a clip of 0.2 cuts the first
    two off."""
    logprobs = torch.tensor(ratios).log()
    result = loss_of(
        loss, logprobs, torch.zeros_like(logprobs), torch.tensor(advantages), torch.ones_like(logprobs) > 0
    )
    assert {name: value.item() for name, value in result.metrics.items()} == {
        "clip_ratio/low_mean": 0.25,
        "clip_ratio/high_mean": 0.25,
        "clip_ratio/region_mean": 0.5,
    }
    assert result.loss.item() == pytest.approx(expected)


@BOTH
@given(st.data())
def test_whatever_stands_off_the_mask_changes_no_bit(kind: type, data: st.DataObject) -> None:
    shape = (2, 6)
    mask = torch.tensor(data.draw(st.lists(st.booleans(), min_size=12, max_size=12))).reshape(shape)
    anything = st.sampled_from([0.0, -1.5, 1e30, -1e30, math.inf, -math.inf, math.nan])
    junk = torch.tensor(data.draw(st.lists(anything, min_size=12, max_size=12))).reshape(shape)
    values = torch.linspace(-3.0, -0.1, 12).reshape(shape)
    found = []
    for other in (values, junk):
        logprobs = torch.where(mask, values, other).requires_grad_()
        result = loss_of(kind(0.2, 0.2), logprobs, values * 1.1, torch.where(mask, values + 1.0, other), mask)
        result.loss.backward()
        found.append((result.loss, logprobs.grad))
    (clean, expected), (dirty, gradient) = found
    assert torch.equal(dirty, clean)
    assert torch.equal(gradient, expected)
    assert torch.equal(gradient[~mask], torch.zeros(int((~mask).sum())))
    assert math.isfinite(clean.item())


def test_long_sequences_do_not_overflow() -> None:
    """The product of 20,000 ratios of e^0.5 would; their mean does not."""
    logprobs = torch.full((2, 20_000), -0.5, requires_grad=True)
    advantages = torch.tensor([[1.0], [-1.0]])
    result = loss_of(SequenceLoss(0.2, 0.2), logprobs, logprobs.detach() - 0.5, advantages, torch.ones(2, 20_000) > 0)
    result.loss.backward()
    assert result.loss.item() == pytest.approx(-(1.2 - math.exp(0.5)) / 2, rel=1e-4)
    assert logprobs.grad.isfinite().all()


@pytest.mark.parametrize(
    "loss",
    [*(ClippedLoss(aggregate=mode) for mode in ("token-mean", "sequence-mean-token-mean", 7)), SequenceLoss()],
)
def test_trap_an_empty_mask_gives_zero_and_not_a_division_by_zero(loss) -> None:
    zeros = torch.zeros(2, 3)
    assert loss_of(loss, zeros, zeros, zeros, zeros.bool()).loss.item() == 0.0


@pytest.mark.parametrize(("kind", "variant"), [(ClippedLoss, "ppo_clip_token_mean"), (SequenceLoss, "gspo_wide")])
def test_the_ratio_is_to_the_old_policy_and_a_weight_multiplies_the_advantages(kind: type, variant: str) -> None:
    logprobs, old_logprobs, advantages, mask = tensors(CASES[0])
    twice = Totals(tokens=2 * int(mask.sum()), sequences=8)
    how = {"totals": twice, "weight": 0.5, "record": old_logprobs - 1.0}
    loss = loss_of(kind(0.2, 0.2), logprobs, old_logprobs, advantages, mask, **how).loss
    assert loss.item() == pytest.approx(0.25 * CASES[0][variant]["loss"])


@BOTH
def test_only_samples_with_an_advantage_and_a_weight_contribute(kind: type) -> None:
    def sample(advantage: float, weight: float) -> TrainingSample:
        return TrainingSample((1, 2), (False, True), (0.0, -1.0), (0.0, advantage), weight)

    assert kind().contributes(sample(-1.0, 1.0))
    assert not kind().contributes(sample(0.0, 1.0))
    assert not kind().contributes(sample(1.0, 0.0))


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
