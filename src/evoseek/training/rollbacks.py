"""Rollbacks: a run whose reward has collapsed goes on with the weights of its best steps, at half of the learning rate.

    m(t)       the mean of answer_reward over steps t - 4 .. t of the current stage
    best       the largest m(u), u <= t
    collapsed  m(t) is below best / 2, by more than twice the standard error of the difference

The weights are those of the newest checkpoint with which the best steps can have begun, step 0 included; the number of
the step goes on, so that no rollouts are repeated, and what counts begins anew. Where the rewards of a game are not
those of fixed questions (self-play), there is no answer_reward, and so no rollback. It fails if the questions become
much harder by themselves: give a curriculum stages, or no rollbacks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, stdev
from typing import Any, cast

from evoseek.training.stages import Stages

_REWARD = "answer_reward"
_WINDOW = 5  # steps
_SHARE = 0.5
_ERRORS = 2.0


@dataclass(frozen=True, slots=True)
class Rollback:
    """After `step` the weights were again those of step `to`."""

    step: int
    to: int


@dataclass(slots=True)
class Rollbacks:
    """The rollbacks of a run, at most `limit`, and the rewards since the last one: (step, reward)."""

    limit: int = 0
    history: list[Rollback] = field(default_factory=list[Rollback])
    rewards: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])

    @classmethod
    def of(cls, limit: int, position: Mapping[str, object] | None) -> Rollbacks:
        """Those of a run whose last checkpoint has this position (None: it begins)."""
        begun = cast("Sequence[Mapping[str, Any]]", (position or {}).get("rollbacks") or ())
        return cls(limit, [Rollback(**one) for one in begun])

    def state(self) -> list[dict[str, object]]:
        """What was rolled back, as plain JSON, for a checkpoint."""
        return [asdict(one) for one in self.history]

    @property
    def rate_factor(self) -> float:
        """What the learning rate is multiplied by."""
        return 0.5 ** len(self.history)

    def restore_rows(self, rows: Sequence[Mapping[str, float | None]], stages: Stages | None) -> None:
        """Take the rewards since the last rollback, and of the current stage, from the rows of the run."""
        since = self.history[-1].step if self.history else 0
        begins = max(since + 1, stages.history[-1].step if stages else 1)
        own = [row for row in rows if (row["step"] or 0) >= begins]
        self.rewards = [(int(row["step"] or 0), reward) for row in own if (reward := row.get(_REWARD)) is not None]

    def observe(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take a step's row."""
        if step > 0 and math.isfinite(reward := metrics.get(_REWARD, math.nan)):
            self.rewards.append((step, reward))

    @property
    def good(self) -> int | None:
        """The step whose weights a rollback would take: the one before the best steps began. None if there was no step,
        and without rollbacks."""
        return self._best[0][0] - 1 if self.limit and self.rewards else None

    @property
    def _best(self) -> Sequence[tuple[int, float]]:
        ends = range(min(_WINDOW, len(self.rewards)), len(self.rewards) + 1)
        return max((self.rewards[max(0, end - _WINDOW) : end] for end in ends), key=_mean)

    def collapsed(self) -> str | None:
        """The collapse after the last step, in words; None if there is none, or no rollback is left."""
        if len(self.history) >= self.limit or len(self.rewards) < 2 * _WINDOW:
            return None
        best, now = self._best, self.rewards[-_WINDOW:]
        fall = _mean(best) - _mean(now)
        if _mean(now) >= _SHARE * _mean(best) or fall <= _ERRORS * math.hypot(_error(best), _error(now)):
            return None
        return (
            f"The mean reward of answers over steps {now[0][0]} to {now[-1][0]} is {_mean(now):.3f}, less than half of "
            f"the {_mean(best):.3f} over steps {best[0][0]} to {best[-1][0]}."
        )

    def count(self, step: int, to: int) -> None:
        """A rollback was made."""
        self.history.append(Rollback(step, to))
        self.rewards = []


def _mean(window: Sequence[tuple[int, float]]) -> float:
    return fmean(reward for _, reward in window)


def _error(window: Sequence[tuple[int, float]]) -> float:
    return stdev(reward for _, reward in window) / math.sqrt(len(window))
