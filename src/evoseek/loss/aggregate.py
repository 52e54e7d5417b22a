"""From per-token values [B, T] to one number: the main difference between the GRPO variants.

token-mean                sum over all tokens / number of tokens (DAPO, arXiv 2503.14476): long answers weigh more
sequence-mean-token-mean  mean over sequences of each one's token mean (GRPO, arXiv 2402.03300)
sequence-sum              mean over sequences of each one's token sum (REINFORCE)
FixedLength(n)            the same over a constant length n (Dr. GRPO, arXiv 2503.20783)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

import torch

from evoseek.loss.base import Totals


@dataclass(frozen=True, slots=True)
class FixedLength:
    """Divide each sequence's sum by a constant number of tokens instead of its own."""

    tokens: int


Aggregate = Literal["token-mean", "sequence-mean-token-mean", "sequence-sum"] | FixedLength


def aggregate_of(setting: str | int) -> Aggregate:
    """The aggregate that a setting names: a number is a constant length."""
    return FixedLength(setting) if isinstance(setting, int) else cast(Aggregate, setting)


def count_totals(loss_mask: torch.Tensor) -> Totals:
    """Totals of a batch that is a whole step by itself; sequences without any masked token do not count."""
    return Totals(tokens=int(loss_mask.sum()), sequences=int(loss_mask.any(dim=-1).sum()))


def aggregate_tokens(
    values: torch.Tensor, loss_mask: torch.Tensor, mode: Aggregate, totals: Totals | None = None
) -> torch.Tensor:
    """Reduce values [B, T] over `loss_mask` to a scalar: this micro-batch's share of the batch's aggregate.

    `totals` counts the whole batch (default: this one). An empty mask gives 0, never a division by zero.
    """
    totals = totals or count_totals(loss_mask)
    values = values.masked_fill(~loss_mask, 0.0)
    tokens, sequences = max(totals.tokens, 1), max(totals.sequences, 1)
    match mode:
        case "token-mean":
            return values.sum() / tokens
        case "sequence-mean-token-mean":
            return (values.sum(dim=-1) / loss_mask.sum(dim=-1).clamp(min=1)).sum() / sequences
        case "sequence-sum":
            return values.sum() / sequences
        case FixedLength(length):
            return values.sum() / (sequences * length)
