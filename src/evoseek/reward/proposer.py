"""What a proposer's question is worth: how hard the solver found it.

    difficulty = (n - k) / (n - 1)   if 0 < k < n of n attempts were right, else 0      (Dr. Zero)

The hardest question that the solver can still answer is worth 1; one that it always or never answers, nothing. Attempts
that failed for reasons outside the solver are no attempts: leave them out of both numbers, or an outage pays.
"""

from __future__ import annotations


def difficulty(correct: int, attempts: int) -> float:
    """Dr. Zero's difficulty reward, in [0, 1]; 0 for fewer than two attempts, of which none can be between.

    Raises ValueError if `correct` is not from 0 to `attempts`.
    """
    if not 0 <= correct <= attempts:
        raise ValueError(f"{correct} of {attempts} attempts cannot be right.")
    return (attempts - correct) / (attempts - 1) if 0 < correct < attempts else 0.0
