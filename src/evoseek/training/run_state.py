"""What a run keeps on disk between processes, and how it is taken up again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from evoseek.learner.checkpoint import Checkpoint, Part, save_checkpoint
from evoseek.learner.distributed import ALONE, Ranks
from evoseek.runs import RunDirectory


def resume(run: RunDirectory, checkpoint: Checkpoint | None, parts: Mapping[str, Part], ranks: Ranks = ALONE) -> int:
    """Take a run up where `checkpoint` left it, or begin it (None); returns the step it stands at.

    `parts` were made for the checkpoint's weights. Optimizers and counters are restored and the logs cut back to where
    they were; everything random is a function of the seed and the step, so nothing else has a state. Raises RunError
    if a log is shorter than it was, or one that is read was changed.
    """
    position = checkpoint.position if checkpoint else {}
    logs, digests = (cast("dict[str, Any]", position.get(key) or {}) for key in ("logs", "digests"))
    if ranks.is_first:
        run.rewind(logs, digests)
    if checkpoint is None:
        return 0
    for name, part in parts.items():
        checkpoint.restore(name, part.learner)
    return checkpoint.step


@dataclass(frozen=True, slots=True)
class RunState:
    """Writes a run's checkpoints, of which the last `keep_last` are kept; one by all ranks together."""

    run: RunDirectory
    parts: Mapping[str, Part]
    keep_last: int
    ranks: Ranks = ALONE

    def save(self, step: int) -> None:
        """Write a checkpoint. Raises CheckpointError."""
        save_checkpoint(
            self.run.path,
            step=step,
            parts=self.parts,
            position={"logs": self.run.positions(), "digests": self.run.digests()},
            keep_last=self.keep_last,
            ranks=self.ranks,
        )
