"""How much of a forward pass counts as the policy's own time."""

from __future__ import annotations

from collections import deque
from statistics import median_low

# A pass counts as this many usual ones at most. Passes that read a whole prompt are longer than those of one token.
MOST = 5
_RECENT = 101


class PassTimes:
    """Takes the seconds of each forward pass, and says how many of them are the policy's.

    A pass counts as `MOST` times the median of the last 101 at most, itself included. The surplus is waiting: the
    machine swapped, was stopped or computed something else, or a long text of a tool was read. A machine that stays
    slower is followed after half as many passes. Of the first two passes the shorter one is the usual one.
    """

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=_RECENT)

    def own(self, seconds: float) -> float:
        """The seconds of a pass that are the policy's own."""
        self._recent.append(seconds)
        return min(seconds, MOST * median_low(self._recent))
