"""Totals of a batch that is a whole step by itself."""

import torch

from evoseek.loss.base import Totals


def count_totals(loss_mask: torch.Tensor) -> Totals:
    """Its action tokens, and its sequences with any."""
    return Totals(tokens=int(loss_mask.sum()), sequences=int(loss_mask.any(dim=-1).sum()))
