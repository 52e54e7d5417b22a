"""What a run keeps on disk between processes, and how it is taken up again."""

from __future__ import annotations

from evoseek.learner.checkpoint import Checkpoint, save_checkpoint
from evoseek.learner.learner import Learner
from evoseek.policy.load import Policy, save_policy
from evoseek.runs import RunDirectory


class RunState:
    """A run's checkpoints, for `TrainingLoop`.

    `policy` and `learner` were made from `start`, the checkpoint to go on from (None: a new run). Everything random is
    a function of the seed and the step, so weights, optimizer and the lengths of the logs are the whole state.
    """

    def __init__(
        self, run: RunDirectory, *, policy: Policy, learner: Learner, start: Checkpoint | None, keep_last: int
    ) -> None:
        self.run = run
        self.policy = policy
        self.learner = learner
        self.start = start
        self.keep_last = keep_last

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

    def resume(self) -> int:
        """Restore optimizer and counters and cut the logs back to where they were. Returns the step, 0 if new.

        Raises RunError if a log is shorter than it was.
        """
        if self.start is None:
            self.run.rewind({})
            return 0
        logs = self.start.position.get("logs")
        self.run.rewind(logs if isinstance(logs, dict) else {})
        self.start.restore(self.learner)
        return self.start.step
