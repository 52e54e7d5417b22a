import pytest
import torch
from tests.doubles.losses import count_totals

from evoseek.loss.base import Aggregate, Totals, aggregate_tokens

VALUES = torch.tensor([[1.0, 2.0, 9.0], [4.0, 9.0, 9.0], [9.0, 9.0, 9.0]])
MASK = torch.tensor([[True, True, False], [True, False, False], [False, False, False]])


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("token-mean", 7 / 3),
        ("sequence-mean-token-mean", (1.5 + 4) / 2),
        ("sequence-sum", 7 / 2),
        (10, 7 / 20),
    ],
)
def test_aggregates_by_hand(mode: Aggregate, expected: float) -> None:
    assert count_totals(MASK) == Totals(tokens=3, sequences=2)  # a row without tokens is no sequence
    assert aggregate_tokens(VALUES, MASK, mode, count_totals(MASK)).item() == pytest.approx(expected)


@pytest.mark.parametrize("mode", ["token-mean", "sequence-mean-token-mean", "sequence-sum", 10])
def test_totals_from_outside_are_the_denominator(mode: Aggregate) -> None:
    own = aggregate_tokens(VALUES, MASK, mode, count_totals(MASK))
    assert aggregate_tokens(VALUES, MASK, mode, Totals(tokens=6, sequences=4)).item() == pytest.approx(own.item() / 2)
