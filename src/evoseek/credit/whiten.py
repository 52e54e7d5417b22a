"""Whitening over a whole batch: subtract the mean, divide by the standard deviation.

    w = (a - mean) / sqrt(variance + eps)       variance with n - 1, over all numbers of all lists

PPO whitens the advantages of all tokens of a batch, where every token counts alike and a long trajectory therefore
weighs more; REINFORCE++ whitens the trajectories' rewards. The batch is the whole batch of an optimizer step: with
rollouts spread over several processes, gather first. It fails where the batch holds few numbers: rare large ones then
set the scale of all others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def whiten(sequences: Sequence[Sequence[float]], *, eps: float = 1e-8) -> list[list[float]]:
    """Whiten per-token numbers over all tokens of all sequences; the shape stays.

    Numbers that are all equal (or a single one) become exactly 0.
    """
    values = [value for sequence in sequences for value in sequence]
    if not values or min(values) == max(values):  # rounding of the mean must not create a signal
        return [[0.0] * len(sequence) for sequence in sequences]
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    scale = math.sqrt(variance + eps)
    return [[(value - mean) / scale for value in sequence] for sequence in sequences]
