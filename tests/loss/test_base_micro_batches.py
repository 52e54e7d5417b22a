"""Every loss: however a batch is split into micro-batches, loss, gradient and metrics add up to the whole's."""

from dataclasses import fields

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.doubles.losses import count_totals

from evoseek.loss.base import LossFn, LossInputs, ValueInputs
from evoseek.loss.clipped import ClippedLoss, SequenceLoss
from evoseek.loss.likelihood import CrossEntropyLoss, ReinforceLoss, ValueLoss
from evoseek.loss.terms import WithTerms

B, T = 5, 8
AGGREGATES = ("token-mean", "sequence-mean-token-mean", "sequence-sum", 7)
LOSSES: dict[str, LossFn] = {
    **{f"{kind.__name__} {mode}": kind(aggregate=mode) for kind in (ClippedLoss, ReinforceLoss) for mode in AGGREGATES},
    **{f"{kind.__name__} {mode}": kind(0.2, mode) for kind in (ValueLoss,) for mode in AGGREGATES},
    "CrossEntropyLoss": CrossEntropyLoss(),
    "SequenceLoss": SequenceLoss(0.2, 0.3),
    "kl": WithTerms(ClippedLoss(), kl=0.1),
    "kl sequence-sum": WithTerms(ReinforceLoss("sequence-sum"), kl=0.1),
    "entropy": WithTerms(ClippedLoss(), entropy=0.1),
    "importance token": WithTerms(ClippedLoss(), "truncate"),
    "importance sequence": WithTerms(SequenceLoss(), "mask"),
}


def make(kind: type, seed: int) -> LossInputs | ValueInputs:
    """Right-padded rows of random lengths, with action and other tokens; some rows may have no action token."""
    random = torch.Generator().manual_seed(seed)
    mask = torch.rand(B, T, generator=random) < 0.6
    mask &= torch.arange(T) < torch.randint(1, T + 1, (B, 1), generator=random)
    values = {
        field.name: (torch.randn(B, T, dtype=torch.float64, generator=random) * 0.5).masked_fill(~mask, 0.0)
        for field in fields(kind)
    }
    weights = torch.rand(B, dtype=torch.float64, generator=random) + 0.5
    return kind(**{**values, "loss_mask": mask, "weights": weights})


def part_of(inputs: LossInputs | ValueInputs, rows: list[int]) -> LossInputs | ValueInputs:
    """The rows as a micro-batch of their own, without the columns that only other rows need."""
    kept = inputs.loss_mask[rows].any(dim=0).nonzero()
    width = int(kept.max()) + 1 if len(kept) else 1
    return type(inputs)(
        **{
            field.name: value[rows] if (value := getattr(inputs, field.name)).dim() == 1 else value[rows, :width]
            for field in fields(inputs)
        }
    )


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(0, 3), min_size=B, max_size=B))
def test_a_split_batch_adds_up_to_the_whole(loss: LossFn, seed: int, places: list[int]) -> None:
    inputs = make(ValueInputs if isinstance(loss, ValueLoss) else LossInputs, seed)
    learned = [getattr(inputs, name) for name in ("logprobs", "entropies", "predictions") if hasattr(inputs, name)]
    for tensor in learned:
        tensor.requires_grad_()
    totals = count_totals(inputs.loss_mask)
    whole = loss(inputs, totals)
    expected = torch.autograd.grad(whole.loss, learned, allow_unused=True, materialize_grads=True)
    groups = [[row for row in range(B) if places[row] == place] for place in sorted(set(places))]
    parts = [loss(part_of(inputs, rows), totals) for rows in groups]
    for part in parts:
        part.loss.backward()
    assert sum(part.loss for part in parts).item() == pytest.approx(whole.loss.item(), abs=1e-12)
    for tensor, gradient in zip(learned, expected, strict=True):
        got = torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
        torch.testing.assert_close(got, gradient, atol=1e-12, rtol=0)
    for name, value in whole.metrics.items():
        assert sum(part.metrics[name] for part in parts).item() == pytest.approx(value.item(), abs=1e-6)
