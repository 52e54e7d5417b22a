"""Generalised advantage estimation (arXiv 1506.02438, eq. 16), as PPO uses it.

    delta_t     = r_t + gamma V_{t+1} - V_t         V is 0 after the last token
    advantage_t = delta_t + gamma lam advantage_{t+1}
    return_t    = advantage_t + V_t

The steps are a trajectory's *action* tokens alone, one after the other: the token before an observation is followed by
the first token after it, so no credit is lost in a tool's output, and a critic need not value it. lam = 1 uses the
rewards as observed (unbiased, noisy); lam = 0 trusts the critic one token ahead, which fails as long as it is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence


def gae(
    rewards: Sequence[float], values: Sequence[float], *, gamma: float, lam: float
) -> tuple[list[float], list[float]]:
    """(advantages, returns) of one trajectory's action tokens, from their rewards and the values before each of them.

    Advantages are not whitened (see `whiten`). An outcome reward stands on the last token, 0.0 on all others. Raises
    ValueError if the lengths differ.
    """
    advantages: list[float] = []
    advantage = next_value = 0.0
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        delta = reward + gamma * next_value - value
        advantage = delta + gamma * lam * advantage
        advantages.append(advantage)
        next_value = value
    advantages.reverse()
    return advantages, [advantage + value for advantage, value in zip(advantages, values, strict=True)]
