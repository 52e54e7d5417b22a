"""DSPO's dynamic filter (arXiv 2510.09255, eq. 9; after DAPO, arXiv 2503.14476, section 3.2).

Only groups with 0 < successes < G train; the others are replaced by drawing further groups until the batch is full.
Their advantages would all be 0, so that the batch would be smaller than it looks. The refill is bounded: where the
policy solves everything or nothing, no number of draws would fill the batch.

    selection = GroupSelection(wanted=20, max_draws=80)
    while selection.next_draw:
        for group in await rollouts(selection.next_draw):
            selection.add(group.key, rewards_of(group))
    train on selection.kept, which is a smaller batch if selection.missing
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Signal(StrEnum):
    """How a group's valid rewards compare. Only `MIXED` gives a learning signal."""

    MIXED = "mixed"  # they differ
    ALL_RIGHT = "all_right"  # all equal, a success
    ALL_WRONG = "all_wrong"  # all equal, less than a success
    TOO_FEW_VALID = "too_few_valid"  # fewer than two: nothing to compare


def group_signal(rewards: Sequence[float | None], *, success: float = 1.0) -> Signal:
    """Whether a group has a signal, and if not, why. None is an Invalid member, which is no wrong answer.

    For rewards of 0 and 1, MIXED is eq. 9 over the valid members; for graded rewards it means that not all are equal.
    A reward of at least `success` is a success.
    """
    valid = [reward for reward in rewards if reward is not None]
    if len(valid) < 2:
        return Signal.TOO_FEW_VALID
    if min(valid) != max(valid):
        return Signal.MIXED
    return Signal.ALL_RIGHT if valid[0] >= success else Signal.ALL_WRONG


@dataclass(slots=True)
class GroupSelection:
    """The state of one batch's refill: `wanted` groups with a signal, out of at most `max_draws` drawn.

    `kept` holds the keys of the selected groups in the order in which they were added; only this order decides which
    groups are selected.
    """

    wanted: int
    max_draws: int
    success: float = 1.0
    kept: list[str] = field(default_factory=list[str])
    signals: dict[str, Signal] = field(default_factory=dict[str, Signal])

    @property
    def drawn(self) -> int:
        """Groups added so far."""
        return len(self.signals)

    @property
    def missing(self) -> int:
        """Groups that the batch still lacks."""
        return self.wanted - len(self.kept)

    @property
    def next_draw(self) -> int:
        """How many groups to draw next: those missing, up to the bound; 0 when the selection is over."""
        return max(0, min(self.missing, self.max_draws - self.drawn))

    def add(self, key: str, rewards: Sequence[float | None]) -> bool:
        """Add a drawn group and return whether it is kept: it has a signal and the batch is not full.

        A key is one group: raises ValueError if it is added twice.
        """
        if key in self.signals:
            raise ValueError(f"The group {key!r} was added twice; every drawn group needs a key of its own.")
        self.signals[key] = group_signal(rewards, success=self.success)
        is_kept = self.signals[key] is Signal.MIXED and self.missing > 0
        if is_kept:
            self.kept.append(key)
        return is_kept

    def metrics(self) -> dict[str, float]:
        """Numbers of groups: drawn, kept, missing, and those without a signal by reason.

        `rollout/filter/frac_reward_zero_std` is the share of equal rewards among groups with two or more valid members:
        TRL's frac_reward_zero_std, before the filter. It is left out where no group had two.
        """
        counts = Counter(self.signals.values())
        compared = self.drawn - counts[Signal.TOO_FEW_VALID]
        metrics = {
            "drawn": float(self.drawn),
            "kept": float(len(self.kept)),
            "missing": float(self.missing),
            **{str(signal): float(counts[signal]) for signal in Signal if signal is not Signal.MIXED},
        }
        if compared:
            metrics["frac_reward_zero_std"] = (compared - counts[Signal.MIXED]) / compared
        return {f"rollout/filter/{name}": value for name, value in metrics.items()}
