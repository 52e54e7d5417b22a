"""Group-relative advantages: GRPO, Dr. GRPO and HRPO are this one function with other keys and scales.

    advantage_i = (r_i - mean of its group) / (std of its group + eps)       scale="std"  (std with n - 1)
    advantage_i =  r_i - mean of its group                                   scale="none"

The group key is the question for GRPO (arXiv 2402.03300; scale "none" is Dr. GRPO, arXiv 2503.20783) and the requested
number of hops for HRPO (Dr. Zero). It gives no signal if all rewards of a group are equal: the advantages are then
exactly 0. With few members the std is a noisy estimate, which blows up rare rewards.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Literal


def group_advantages(
    rewards: Sequence[float | None],
    groups: Sequence[Hashable],
    *,
    scale: Literal["std", "none"] = "std",
    singleton: Literal["raw", "zero", "drop"] = "zero",
    eps: float = 1e-6,
) -> list[float | None]:
    """Advantage of each reward within its group; `rewards` and `groups` run in parallel.

    None stands for an Invalid member: it stays None and is in no statistic. `singleton` says what a group with a
    single valid member gets: its own reward, as if mean 0 and std 1 ("raw"), 0 ("zero") or None ("drop").
    """
    members: dict[Hashable, list[int]] = {}
    for index, (reward, group) in enumerate(zip(rewards, groups, strict=True)):
        if reward is not None:
            members.setdefault(group, []).append(index)
    advantages: list[float | None] = [None] * len(rewards)
    for indices in members.values():
        values = [value for value in (rewards[index] for index in indices) if value is not None]
        results = [_single(values[0], scale, singleton, eps)] if len(values) == 1 else _centred(values, scale, eps)
        for index, result in zip(indices, results, strict=True):
            advantages[index] = result
    return advantages


def _single(reward: float, scale: str, singleton: str, eps: float) -> float | None:
    if singleton == "drop":
        return None
    if singleton == "zero":
        return 0.0
    return reward / (1.0 + eps) if scale == "std" else reward


def _centred(values: list[float], scale: str, eps: float) -> list[float]:
    if min(values) == max(values):  # rounding of the mean must not create a signal
        return [0.0] * len(values)
    mean = math.fsum(values) / len(values)
    deviations = [value - mean for value in values]
    if scale == "none":
        return deviations
    std = math.sqrt(math.fsum(deviation**2 for deviation in deviations) / (len(values) - 1))
    return [deviation / (std + eps) for deviation in deviations]
