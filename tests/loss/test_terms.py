"""The loss of the settings, and what is around it."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.doubles.losses import count_totals

from evoseek.assembly.sources import load_settings
from evoseek.config.registry import build
from evoseek.errors import TrainingError
from evoseek.loss.base import LossInputs, aggregate_tokens
from evoseek.loss.clipped import ClippedLoss, SequenceLoss
from evoseek.loss.likelihood import ReinforceLoss
from evoseek.loss.terms import WithTerms, importance_weights, kl_k3, wrapped
from evoseek.types import TrainingSample

# Ratios of three tokens and one off the mask; of two tokens and two off the mask.
RATIOS = torch.tensor([[4.0, 0.5, 1.0, 9.0], [0.25, 0.5, 9.0, 9.0]], dtype=torch.float64)
MASK = torch.tensor([[True, True, True, False], [True, True, False, False]])
ZEROS = torch.zeros(2, 4, dtype=torch.float64)


@pytest.mark.parametrize(
    ("outside", "expected", "out"),
    [
        ("truncate", [2.0, 0.5, 1.0, 0.25, 0.5], [1, 0, 0, 0, 0]),
        ("mask", [0.0, 0.5, 1.0, 0.0, 0.5], [1, 0, 0, 1, 0]),
    ],
)
def test_token_weights_by_hand(outside: str, expected: list, out: list) -> None:
    weights, is_outside = importance_weights(RATIOS.log(), ZEROS, MASK, level="token", outside=outside)
    assert weights[MASK].tolist() == pytest.approx(expected)
    assert is_outside[MASK].int().tolist() == out
    assert weights[~MASK].tolist() == [1.0] * 3


@pytest.mark.parametrize(("outside", "expected"), [("truncate", (2.0, 0.125)), ("mask", (2.0, 0.0))])
def test_sequence_weights_are_the_products_of_the_action_tokens_ratios(
    outside: str, expected: tuple[float, float]
) -> None:
    """4 * 0.5 * 1 = 2 and 0.25 * 0.5 = 0.125."""
    weights, _ = importance_weights(RATIOS.log(), ZEROS, MASK, level="sequence", outside=outside)
    for row, value in enumerate(expected):
        assert weights[row].tolist() == pytest.approx([value] * 4)


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("outside", ["truncate", "mask"])
def test_the_same_logprobs_give_exactly_one(level: str, outside: str) -> None:
    logprobs = -torch.rand(3, 50)
    mask = torch.rand(3, 50) < 0.7
    weights, _ = importance_weights(logprobs, logprobs, mask, level=level, outside=outside)
    assert torch.equal(weights, torch.ones(3, 50))


@pytest.mark.parametrize("outside", ["truncate", "mask"])
def test_long_sequences_do_not_overflow(outside: str) -> None:
    old = torch.tensor([[0.5], [-0.5]]).expand(2, 5000)
    mask = torch.ones(2, 5000, dtype=torch.bool)
    weights, _ = importance_weights(old, torch.zeros(2, 5000), mask, level="sequence", outside=outside)
    assert weights[:, 0].tolist() == pytest.approx([2.0 if outside == "truncate" else 0.0, 0.0])


def inputs_of(make_inputs: Callable[..., LossInputs], ratios: torch.Tensor) -> LossInputs:
    logprobs = torch.full((2, 4), -1.0, dtype=torch.float64).requires_grad_()
    old = logprobs.detach().clone().requires_grad_()
    return make_inputs(
        logprobs,
        MASK,
        rollout_logprobs=old.detach() - ratios.log(),
        old_logprobs=old,
        advantages=torch.tensor([[1.0], [-2.0]], dtype=torch.float64).expand(2, 4),
    )


def test_as_a_loss_function_it_weighs_each_token_and_counts_what_it_did(make_inputs: Callable[..., LossInputs]) -> None:
    inputs = inputs_of(make_inputs, RATIOS)
    result = WithTerms(ClippedLoss(aggregate="sequence-sum"), "truncate")(inputs, count_totals(MASK))
    result.loss.backward()
    assert result.loss.item() == pytest.approx(-((2 + 0.5 + 1) - 2 * (0.25 + 0.5)) / 2)
    assert inputs.logprobs.grad.tolist() == [[-1.0, -0.25, -0.5, 0.0], [0.25, 0.5, 0.0, 0.0]]
    assert result.metrics["sampling/importance_sampling_ratio/deviation"].item() == pytest.approx(
        (1 + 0.5 + 0 + 0.75 + 0.5) / 5
    )
    assert result.metrics["sampling/importance_sampling_ratio/outside_frac"].item() == pytest.approx(1 / 5)
    assert "clip_ratio/region_mean" in result.metrics


def test_reinforce_with_weights_is_the_importance_weighted_policy_gradient(
    make_inputs: Callable[..., LossInputs],
) -> None:
    inputs = inputs_of(make_inputs, RATIOS)
    WithTerms(ReinforceLoss(), "truncate")(inputs, count_totals(MASK)).loss.backward()
    expected = -(RATIOS.clamp(max=2.0) * inputs.advantages / 2).masked_fill(~MASK, 0.0)
    torch.testing.assert_close(inputs.logprobs.grad, expected)
    assert inputs.old_logprobs.grad is None


def test_a_sequence_loss_takes_its_sequences_weights(make_inputs: Callable[..., LossInputs]) -> None:
    """Both sequence ratios are 1; the weights are min(2, 2.5) and 0.125."""
    ratios = RATIOS * torch.tensor([1.25, 1.0, 1.0, 1.0])
    ratios[1] = RATIOS[1]
    result = WithTerms(SequenceLoss(), "truncate")(inputs_of(make_inputs, ratios), count_totals(MASK))
    assert result.loss.item() == pytest.approx(-(2 * 1 - 0.125 * 2) / 2)


@pytest.mark.parametrize("term", [{}, {"importance": "truncate"}, {"kl": 0.1}, {"entropy": 0.3}])
def test_a_sample_without_advantage_has_a_kl_and_an_entropy(term: dict) -> None:
    """Without these terms it contributes where the other loss does; without a weight it never does."""
    loss = WithTerms(ClippedLoss(), **term)
    assert loss.contributes(TrainingSample((1, 2), (False, True), (0.0, -1.0), (0.0, 1.0)))
    has_term = "kl" in term or "entropy" in term
    assert loss.contributes(TrainingSample((1, 2), (False, True), (0.0, -1.0), (0.0, 0.0))) == has_term
    assert not loss.contributes(TrainingSample((1, 2), (False, True), (0.0, -1.0), (0.0, 1.0), weight=0.0))


CASES = json.loads((Path(__file__).parents[1] / "fixtures" / "policy_losses.json").read_text())["cases"]


@pytest.mark.parametrize("case", CASES)
def test_token_mean_equals_the_reference(case: dict) -> None:
    logprobs, ref_logprobs = (
        torch.tensor(case[key], dtype=torch.float64, requires_grad=True) for key in ("logprobs", "ref_logprobs")
    )
    mask = torch.tensor(case["loss_mask"]).bool()
    mean = aggregate_tokens(kl_k3(logprobs, ref_logprobs), mask, "token-mean", count_totals(mask))
    assert mean.item() == pytest.approx(case["kl_k3_token_mean"], abs=1e-9)


def test_the_gradient_of_the_kl_by_hand() -> None:
    """1 - ref / policy: here 1 - 2 and 1 - 1/2."""
    policy = torch.tensor([0.2, 0.4], dtype=torch.float64).log().requires_grad_()
    ref = torch.tensor([0.4, 0.2], dtype=torch.float64).log()
    (k3,) = torch.autograd.grad(kl_k3(policy, ref).sum(), policy)
    assert k3.tolist() == pytest.approx([-1.0, 0.5])


@given(st.lists(st.floats(0.05, 1.0), min_size=2, max_size=5), st.lists(st.floats(0.05, 1.0), min_size=5, max_size=5))
def test_it_estimates_the_divergence_without_bias(first: list, second: list) -> None:
    """Its expectation under the policy, over a whole small vocabulary, is the divergence itself."""
    policy = torch.tensor(first, dtype=torch.float64).log().log_softmax(0)
    ref = torch.tensor(second[: len(first)], dtype=torch.float64).log().log_softmax(0)
    exact = (policy.exp() * (policy - ref)).sum().item()
    assert (policy.exp() * kl_k3(policy, ref)).sum().item() == pytest.approx(exact, abs=1e-9)
    assert (kl_k3(policy, ref) >= -1e-12).all()


def test_the_kl_is_added_to_a_loss(make_inputs: Callable[..., LossInputs]) -> None:
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
    mean = (math.exp(-1) + math.exp(1) - 2) / 2
    result = WithTerms(ClippedLoss(), kl=0.1)(inputs, count_totals(mask))
    result.loss.backward()
    assert result.loss.item() == pytest.approx(-0.5 + 0.1 * 0.5 * mean)
    assert result.metrics["kl"].item() == pytest.approx(mean)
    assert "clip_ratio/region_mean" in result.metrics
    assert logprobs.grad.isfinite().all()
    assert logprobs.grad[0, 2].item() == 0.0


def test_without_reference_logprobs_it_says_what_is_missing(make_inputs: Callable[..., LossInputs]) -> None:
    mask = torch.ones(1, 2, dtype=torch.bool)
    with pytest.raises(TrainingError, match="ref_logprobs"):
        WithTerms(ClippedLoss(), kl=0.1)(make_inputs(torch.zeros(1, 2), mask), count_totals(mask))


ENTROPY_MASK = torch.tensor([[True, True, False], [True, False, False]])


def test_the_bonus_is_the_mean_entropy_of_the_action_tokens(make_inputs: Callable[..., LossInputs]) -> None:
    entropies = torch.tensor([[1.0, 2.0, 7.0], [4.0, 7.0, 7.0]], requires_grad=True)
    weights = torch.tensor([1.0, 0.5])
    inputs = make_inputs(torch.zeros(2, 3, requires_grad=True), ENTROPY_MASK, entropies=entropies, weights=weights)
    result = WithTerms(ClippedLoss(), entropy=0.3)(inputs, count_totals(ENTROPY_MASK))
    result.loss.backward()
    assert result.loss.item() == pytest.approx(-0.3 * (1 + 2 + 0.5 * 4) / 3)
    torch.testing.assert_close(entropies.grad, torch.tensor([[-0.1, -0.1, 0.0], [-0.05, 0.0, 0.0]]))
    assert "clip_ratio/region_mean" in result.metrics


def test_entropies_without_a_gradient_are_refused(make_inputs: Callable[..., LossInputs]) -> None:
    inputs = make_inputs(torch.zeros(2, 3, requires_grad=True), ENTROPY_MASK)
    with pytest.raises(TrainingError, match="entropy_gradient=True"):
        WithTerms(ClippedLoss(), entropy=0.3)(inputs, count_totals(ENTROPY_MASK))


def test_the_three_terms_add_up(make_inputs: Callable[..., LossInputs]) -> None:
    """KL and entropy are aggregated as the loss aggregates its tokens, and not corrected by importance weights."""
    mask = torch.tensor([[True, True]])
    inputs = make_inputs(
        torch.full((1, 2), -1.0, dtype=torch.float64, requires_grad=True),
        mask,
        rollout_logprobs=torch.full((1, 2), -1.0 - math.log(1.5), dtype=torch.float64),
        old_logprobs=torch.full((1, 2), -1.0, dtype=torch.float64),
        advantages=torch.ones(1, 2, dtype=torch.float64),
        ref_logprobs=torch.full((1, 2), -2.0, dtype=torch.float64),
        entropies=torch.full((1, 2), 3.0, dtype=torch.float64, requires_grad=True),
    )
    result = WithTerms(ReinforceLoss("sequence-sum"), "mask", 0.5, 0.25)(inputs, count_totals(mask))
    assert result.loss.item() == pytest.approx(2 * (1.5 + 0.5 * math.exp(-1) - 0.25 * 3))


def test_the_surrogate_and_what_is_around_it():
    def loss(name="clipped", *, own=None, **around):
        options = {"loss.name": name, **{f"loss.{key}": value for key, value in (own or {}).items()}}
        settings = load_settings(options=options | {f"algorithm.{key}": value for key, value in around.items()})
        return wrapped(build("loss", settings.loss, None), settings.algorithm)

    assert loss("sequence", own={"clip_low": 0.1, "clip_high": 0.3}) == SequenceLoss(0.1, 0.3)
    assert loss("reinforce", own={"aggregate": "sequence-sum"}) == ReinforceLoss("sequence-sum")
    assert loss(own={"aggregate": 512}) == ClippedLoss(0.2, 0.2, 512)
    assert loss(importance="mask") == WithTerms(ClippedLoss(), "mask")
    assert loss(kl_coefficient=0.01) == WithTerms(ClippedLoss(), kl=0.01)
    assert loss(kl_coefficient=0.01, kl_in="reward") == ClippedLoss()
    assert loss(entropy_coefficient=0.02) == WithTerms(ClippedLoss(), entropy=0.02)
