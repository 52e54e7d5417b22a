"""Advantages without groups: REINFORCE (Williams 1992) and REINFORCE++ (arXiv 2501.03262).

    REINFORCE     advantage_i = r_i
    REINFORCE++   advantage_i = (r_i - mean of the batch) / std of the batch

REINFORCE has no baseline: with rewards in [0, 1] it only ever pushes up, and its gradient is noisy. REINFORCE++ takes
its baseline from the whole batch, so one rollout a question is enough; an easy question then gets positive advantages
for any answer and a hard one negative ones. Where the paper's advantage holds a KL penalty per token, subtract it from
the tokens' rewards and use `whiten` over tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

from evoseek.credit.whiten import whiten


def raw_advantages(rewards: Sequence[float | None]) -> list[float | None]:
    """The reward itself; None, an Invalid member, stays None."""
    return list(rewards)


def whitened_advantages(rewards: Sequence[float | None], *, eps: float = 1e-8) -> list[float | None]:
    """Rewards whitened over all valid members of the batch, each counting once whatever its length.

    None stands for an Invalid member: it stays None and is in no statistic. Equal rewards give exactly 0.
    """
    (valid,) = whiten([[reward for reward in rewards if reward is not None]], eps=eps)
    whitened = iter(valid)
    return [None if reward is None else next(whitened) for reward in rewards]
