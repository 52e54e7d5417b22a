"""How often each question was asked, and answered right, so far in a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evoseek.errors import RunError
from evoseek.reward.shaping import unshaped
from evoseek.training.passes import Passes
from evoseek.types import Scored, TrajectoryGroup


@dataclass(frozen=True, slots=True)
class PassRates:
    """For each question that was rolled out, by id, the sum of its rewards (between 0 and 1) and their number; and the
    `passes` over the questions.

    It is kept in a run's checkpoints. Invalid rollouts are not counted, nor are penalties.
    """

    passes: Passes = field(default_factory=Passes)
    _counts: dict[str, tuple[float, int]] = field(default_factory=dict[str, tuple[float, int]])

    def observe(self, step: int, groups: Sequence[TrajectoryGroup]) -> None:
        """Count the questions and the rollouts of a step."""
        self.passes.count(step, {trajectory.question.id for group in groups for trajectory in group.trajectories})
        for group in groups:
            for trajectory, outcome in zip(group.trajectories, group.outcomes, strict=True):
                if isinstance(outcome, Scored):
                    right, number = self.of(trajectory.question.id)
                    reward = min(1.0, max(0.0, unshaped(outcome)))
                    self._counts[trajectory.question.id] = right + reward, number + 1

    def of(self, question_id: str) -> tuple[float, int]:
        """The sum of a question's rewards, and their number: (0.0, 0) if it was never rolled out."""
        return self._counts.get(question_id, (0.0, 0))

    def state(self) -> dict[str, Any]:
        """Everything as plain JSON."""
        rates = {key: [right, number] for key, (right, number) in self._counts.items()}
        return {"rates": rates, "passes": self.passes.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what `state` gave; of an empty mapping, as new. Raises RunError for anything else."""
        if state and set(state) != {"rates", "passes"}:
            raise RunError(
                "The run's checkpoint does not say which questions were asked: another version of evoseek wrote it. "
                "Resume the run with that version, or train in a new directory."
            )
        self.passes.restore(state.get("passes") or {})
        self._counts.clear()
        self._counts.update(
            {key: (float(right), int(number)) for key, (right, number) in state.get("rates", {}).items()}
        )
