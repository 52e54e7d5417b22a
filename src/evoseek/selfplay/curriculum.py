"""ZeroSearch's noise curriculum (arXiv 2505.04588, eq. 3): simulated search gets worse as the policy gets better.

    p_i = p_s + (b^(i/m) - 1) / (b - 1) * (p_e - p_s)        for step i of m, and p_e from step m on

With b > 1 the probability rises slowly at first and fast at the end. The simulated engine defines noise; whether a
query is noisy is drawn for each query.
"""

from __future__ import annotations


def noise_probability(step: int, total_steps: int, start: float, end: float, base: float = 4.0) -> float:
    """The probability that a simulated result of step `step` (of `total_steps`) is noisy, from `start` to `end`.

    Raises ValueError for a negative step, no steps, probabilities outside 0 to 1, or a base that is 1 or not above 0.
    """
    if step < 0 or total_steps < 1 or not (0 <= start <= 1 and 0 <= end <= 1) or base <= 0 or base == 1:
        raise ValueError(
            f"No noise probability for step {step} of {total_steps}, from {start} to {end} with base {base}: expected "
            "a step from 0, at least one step, probabilities from 0 to 1, and a base above 0 other than 1."
        )
    if step >= total_steps:
        return end
    return start + (base ** (step / total_steps) - 1.0) / (base - 1.0) * (end - start)
