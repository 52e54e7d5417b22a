"""How often each question was answered right so far in a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from evoseek.reward.shaping import unshaped
from evoseek.types import Scored, TrajectoryGroup


@dataclass(frozen=True, slots=True)
class PassRates:
    """For each question that was rolled out, by id, the sum of its rewards (between 0 and 1) and their number.

    It is kept in a run's checkpoints. Invalid rollouts are not counted, nor are penalties.
    """

    _counts: dict[str, tuple[float, int]] = field(default_factory=dict[str, tuple[float, int]])

    def observe(self, groups: Sequence[TrajectoryGroup]) -> None:
        """Count the rollouts of a step."""
        for group in groups:
            for trajectory, outcome in zip(group.trajectories, group.outcomes, strict=True):
                if isinstance(outcome, Scored):
                    right, number = self.of(trajectory.question.id)
                    reward = min(1.0, max(0.0, unshaped(outcome)))
                    self._counts[trajectory.question.id] = right + reward, number + 1

    def of(self, question_id: str) -> tuple[float, int]:
        """The sum of a question's rewards, and their number: (0.0, 0) if it was never rolled out."""
        return self._counts.get(question_id, (0.0, 0))

    def state(self) -> dict[str, list[float]]:
        """Everything as plain JSON."""
        return {key: [right, number] for key, (right, number) in self._counts.items()}

    def restore(self, state: Mapping[str, Sequence[float]]) -> None:
        """Become what `state` gave."""
        self._counts.clear()
        self._counts.update({key: (float(right), int(number)) for key, (right, number) in state.items()})
