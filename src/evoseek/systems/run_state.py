"""What a run keeps on disk between processes, and how it is taken up again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from evoseek.learner.checkpoint import Checkpoint, save_checkpoint
from evoseek.learner.learner import Learner
from evoseek.policy.load import Policy, save_policy
from evoseek.runs import RunDirectory


def resume(run: RunDirectory, learner: Learner, checkpoint: Checkpoint | None) -> int:
    """Take a run up where `checkpoint` left it, or begin it (None); returns the step it stands at.

    `learner` was made for the checkpoint's policy. Optimizer and counters are restored and the logs cut back to where
    they were; everything random is a function of the seed and the step, so nothing else has a state. Raises RunError
    if a log is shorter than it was.
    """
    if checkpoint is None:
        run.rewind({})
        return 0
    logs = checkpoint.position.get("logs")
    run.rewind(cast("dict[str, int]", logs) if isinstance(logs, dict) else {})
    checkpoint.restore(learner)
    return checkpoint.step


@dataclass(frozen=True, slots=True)
class RunState:
    """Writes a run's checkpoints, of which the last `keep_last` are kept."""

    run: RunDirectory
    policy: Policy
    learner: Learner
    keep_last: int

    def save(self, step: int) -> None:
        """Write a checkpoint. Raises CheckpointError."""
        save_checkpoint(
            self.run.path,
            step=step,
            policy_saver=lambda directory: save_policy(self.policy, directory),
            learner=self.learner,
            position={"logs": self.run.positions()},
            keep_last=self.keep_last,
        )
