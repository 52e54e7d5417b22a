"""The share of a duration that counts as the policy's own time: that of a forward pass, or of a served token."""

from __future__ import annotations

from collections import deque
from math import inf
from statistics import median_low

# A pass counts as this many usual ones at most. Passes that read a whole prompt are longer than those of one token.
MOST = 5
_RECENT = 101


class PassTimes:
    """Takes the seconds of each forward pass and returns how many of them are the policy's own.

    A pass counts as `MOST` times the median of the last 101 at most, itself included. The surplus is waiting: the
    machine swapped, was stopped or computed something else, or a long tool result was prefilled. A machine that stays
    slower is recognised after half as many passes. Of the first two passes the shorter one is the usual one.
    """

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=_RECENT)

    @property
    def most(self) -> float:
        """The seconds of a pass that are the policy's own, at most; no limit before the first pass."""
        return MOST * median_low(self._recent) if self._recent else inf

    def own(self, seconds: float) -> float:
        """The seconds of a pass that are the policy's own."""
        self._recent.append(seconds)
        return min(seconds, self.most)
