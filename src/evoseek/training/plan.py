"""The plan that a system builds for the training loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evoseek.rollout.roller import Roller
from evoseek.training.loop import Evaluate, System, nothing
from evoseek.training.run_state import State
from evoseek.training.settings import TrainingSettings

if TYPE_CHECKING:
    from evoseek.learner.checkpoint import Part


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """A system with everything that the loop needs.

    `settings` are those that it was built from, with the choices made while building. `parts` are the parts of a
    checkpoint, `resumed` is called with the step at which training begins, and `examined` answers held-out questions. A
    system with phases defines after how many `steps` it ends, and after which steps an evaluation `is_due` (step 0:
    before training); otherwise the settings do. `is_game` says that the policy is rewarded by a game that it plays
    itself, whose reward may rise while the policy gets worse: the held-out score is then watched for that. `state` is
    what checkpoints keep of the system besides the parts, and `measure` gives its own held-out numbers, at every
    evaluation. `drop` drops what the system has begun of later steps.
    """

    system: System
    settings: TrainingSettings
    parts: Mapping[str, Part]
    resumed: Callable[[int], None]
    examined: Roller
    steps: int | None = None
    is_due: Callable[[int], bool] | None = None
    is_game: bool = False
    state: State | None = None
    measure: Evaluate | None = None
    drop: Callable[[], Awaitable[None]] = nothing
