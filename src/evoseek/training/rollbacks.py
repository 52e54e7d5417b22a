"""Rollbacks: a run that has collapsed goes on with the weights of its best steps, at half of the learning rate.

    now        the mean of answer_reward over the last five steps
    best       its largest mean over five steps before these, in the current stage
    collapsed  now < best / 2; and best - now is more than 3.1 times sqrt(2 m (1 - m) / n), where five steps ask n
               questions and m is the mean of both, and more than twice its standard error by the mean variance within
               all windows of five steps; and in .9 of the groups of the last five steps all answers are worth the same

Rewards alone waver, and the best of many windows is partly luck. So 3.1 standard errors are asked for, of questions
that are answered always right or always wrong: no rewards between 0 and 1 vary more. A fall is therefore seen only from
a height: with 6 questions a step from .28, with 20 from .09. A policy in whose groups no answer is better than another
hardly recovers by itself. (Penalties and the share for evidence may differ within such a group; they do not count.)

The weights are those of the newest checkpoint from before the best steps, step 0 included. Steps go on counting, so
that no rollouts are repeated, and rewards are counted anew. In self-play, whose rewards are of its own questions, there
is no rollback. It is wrong where questions become much harder by themselves: give those a stage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, variance
from typing import Any, NamedTuple, cast

from evoseek.training.stages import Stages

_WINDOW = 5  # steps
_SHARE = 0.5
_CHANCE, _ERRORS = 3.1, 2.0  # standard errors, of questions and of steps; by python bench/guards.py --simulate
_NO_SIGNAL = 0.9


@dataclass(frozen=True, slots=True)
class Rollback:
    """After `step` the weights were again those of step `to`."""

    step: int
    to: int


class Row(NamedTuple):
    """A step's mean reward of answers, and its share of groups in which all answers are worth the same."""

    step: int
    reward: float
    no_signal: float


@dataclass(slots=True)
class Rollbacks:
    """The rollbacks of a run, at most `limit`, and the rows since the last one. Weights are taken from checkpoints that
    the run makes wherever it was interrupted: of every `every`th step, and of earlier rollbacks. A step asks at least
    `questions`."""

    limit: int = 0
    every: int = 1
    history: list[Rollback] = field(default_factory=list[Rollback])
    rows: list[Row] = field(default_factory=list[Row])
    questions: int = 4

    @classmethod
    def of(cls, limit: int, every: int, questions: int, position: Mapping[str, object] | None) -> Rollbacks:
        """Those of a run whose last checkpoint has this position (None: it begins)."""
        return cls(limit, every, rollbacks_in(position or {}), questions=questions)

    def state(self) -> list[dict[str, object]]:
        """What was rolled back, as plain JSON, for a checkpoint."""
        return [asdict(one) for one in self.history]

    @property
    def left(self) -> int:
        """How many are left."""
        return max(0, self.limit - len(self.history))

    @property
    def rate_factor(self) -> float:
        """What the learning rate is multiplied by."""
        return 0.5 ** len(self.history)

    @property
    def since(self) -> int:
        """The step of the last rollback, 0 if there was none: rows up to it are of other weights."""
        return self.history[-1].step if self.history else 0

    def restore_rows(self, rows: Sequence[Mapping[str, float | None]], stages: Stages | None) -> None:
        """Take the rows since the last rollback, and of the current stage, from those of the run."""
        begins = max(self.since + 1, stages.history[-1].step if stages else 1)
        for row in rows:
            if (row["step"] or 0) >= begins:
                self.observe(int(row["step"] or 0), row)

    def observe(self, step: int, metrics: Mapping[str, float | None]) -> None:
        """Take a step's row, if it has a reward."""
        reward = metrics.get("answer_reward")
        no_signal = metrics.get("frac_answer_reward_zero_std", metrics.get("frac_reward_zero_std"))  # or: earlier rows
        if step > 0 and reward is not None and no_signal is not None and math.isfinite(reward + no_signal):
            self.rows.append(Row(step, reward, no_signal))

    def is_source(self, step: int) -> bool:
        """Whether weights may be taken from a checkpoint of this step."""
        return step % self.every == 0 or any(one.step == step for one in self.history)

    @property
    def good(self) -> int:
        """The step before the best ones began, of those before the last five."""
        return self._before_best(len(self.rows) - _WINDOW)

    @property
    def needed(self) -> list[int]:
        """The steps up to which a source must be kept, as they are, or may become, those before the best steps."""
        if not self.left or not self.rows:
            return []
        count = len(self.rows)
        bests = (self._before_best(end) for end in range(max(0, count - _WINDOW), count + 1))
        return sorted({*bests, *(row.step - 1 for row in self.rows[-_WINDOW:])})

    def collapsed(self) -> str | None:
        """The collapse after the last step, in words; None if there is none, or no rollback is left."""
        now, best = self.rows[-_WINDOW:], self._best(self.rows[:-_WINDOW])
        if not self.left or best is None or fmean(row.no_signal for row in now) < _NO_SIGNAL:
            return None
        before, after = _reward(best), _reward(now)
        mean = (before + after) / 2
        chance = _CHANCE * math.sqrt(max(0.0, 2 * mean * (1 - mean) / (_WINDOW * self.questions)))
        if after >= _SHARE * before or before - after <= chance:
            return None
        within = fmean(variance(row.reward for row in one) for one in _windows(self.rows))
        if before - after <= _ERRORS * math.sqrt(2 * within / _WINDOW):
            return None
        return (
            f"The mean reward of answers over steps {now[0].step} to {now[-1].step} is {after:.3f}, less than half of "
            f"the {before:.3f} over steps {best[0].step} to {best[-1].step}, and in nearly no group is "
            "one answer better than another."
        )

    def count(self, step: int, to: int) -> None:
        """A rollback was made."""
        self.history.append(Rollback(step, to))
        self.rows = []

    def _before_best(self, end: int) -> int:
        return (self._best(self.rows[:end]) or self.rows)[0].step - 1

    def _best(self, rows: Sequence[Row]) -> Sequence[Row] | None:
        best = max(_windows(rows), key=_reward, default=None)
        return best if best is not None and _reward(best) > 0 else None


def _windows(rows: Sequence[Row]) -> list[Sequence[Row]]:
    return [rows[end - _WINDOW : end] for end in range(_WINDOW, len(rows) + 1)]


def rollbacks_in(position: Mapping[str, object]) -> list[Rollback]:
    """The rollbacks of a run up to a checkpoint with this position."""
    return [Rollback(**one) for one in cast("Sequence[Mapping[str, Any]]", position.get("rollbacks") or ())]


def was_given_up(step: int, history: Sequence[Rollback]) -> bool:
    """Whether the weights after this step were given up by a rollback."""
    return any(one.to < step <= one.step for one in history)


def _reward(window: Sequence[Row]) -> float:
    return fmean(row.reward for row in window)
