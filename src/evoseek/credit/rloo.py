"""RLOO (arXiv 2402.14740): the baseline of a member is the mean reward of its group's *other* members.

    advantage_i = r_i - mean of r_j, j != i  =  n / (n - 1) * (r_i - mean of the group)

So it is Dr. GRPO's advantage times n / (n - 1), which makes the baseline independent of the member it is subtracted
from, and the gradient unbiased. It does not divide by a standard deviation: rewards of different scale weigh as they
are. It gives no signal if all rewards of a group are equal: the advantages are then exactly 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from evoseek.credit.group import group_advantages


def leave_one_out_advantages(rewards: Sequence[float | None], groups: Sequence[Hashable]) -> list[float | None]:
    """Leave-one-out advantage of each reward; `rewards` and `groups` run in parallel.

    None stands for an Invalid member: it stays None and is in no baseline. A group's only valid member gets 0.
    """
    sizes = Counter(group for reward, group in zip(rewards, groups, strict=True) if reward is not None)
    centred = group_advantages(rewards, groups, scale="none", singleton="zero")
    return [
        None if advantage is None else advantage * sizes[group] / max(sizes[group] - 1, 1)
        for advantage, group in zip(centred, groups, strict=True)
    ]
