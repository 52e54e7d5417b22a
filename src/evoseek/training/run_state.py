"""The state of a run on disk, and how it is resumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from evoseek.learner.checkpoint import Part, restore, save_checkpoint
from evoseek.learner.distributed import ALONE, Ranks
from evoseek.storage.checkpoints import Checkpoint
from evoseek.storage.jsonl import ResumableJsonl
from evoseek.storage.runs import RunDirectory
from evoseek.training.stages import Stages


class State(Protocol):
    """What a system keeps of earlier steps, in each checkpoint."""

    def state(self) -> Mapping[str, Any]:
        """Everything as plain JSON."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what `state` gave; of an empty mapping, as new."""
        ...


def log_positions(run: RunDirectory) -> dict[str, Mapping[str, object]]:
    """The positions of a run's logs, for a checkpoint: `logs`, their lengths in bytes, and `digests`, SHA-256 of those
    that a resumed run reads. Their contents are flushed to the disk first."""
    return {
        "logs": {path.name: ResumableJsonl(path).position() for path in run.logs},
        "digests": {path.name: ResumableJsonl(path).digest() for path in (run.metrics, run.questions) if path.exists()},
    }


def cut_logs(run: RunDirectory, position: Mapping[str, object]) -> None:
    """Cut a run's logs back to earlier `log_positions`; logs without a position become empty. Raises RunError."""
    lengths, digests = (cast("dict[str, Any]", position.get(key) or {}) for key in ("logs", "digests"))
    for path in run.logs:
        ResumableJsonl(path).cut_back(lengths.get(path.name, 0), digests.get(path.name))


@dataclass(frozen=True, slots=True)
class RunState:
    """Writes a run's checkpoints, of which the last `keep_last` are kept and the one that a rollback would need, and
    resumes from one; all ranks together.

    `parts` are the models in training, `state` is what the system keeps.
    """

    run: RunDirectory
    parts: Mapping[str, Part]
    keep_last: int
    ranks: Ranks = ALONE
    state: State | None = None
    stages: Stages | None = None

    def resume(self, checkpoint: Checkpoint | None) -> int:
        """Resume the run from the checkpoint that its parts were made of, or begin it (None); returns the number of
        finished steps.

        Optimizers, counters and the system's state are restored and the logs cut back to where they were; everything
        random is a function of the seed and the step, so nothing else has a state. Raises RunError if a log is shorter
        than it was, or one that is read was changed.
        """
        if self.ranks.is_first:
            cut_logs(self.run, checkpoint.position if checkpoint else {})
            if checkpoint is None:
                self.run.forget_trackers()
        if checkpoint is None:
            return 0
        for name, part in self.parts.items():
            restore(checkpoint, name, part.learner)
        if self.state is not None:
            self.state.restore(cast("Mapping[str, Any]", checkpoint.position.get("system") or {}))
        return checkpoint.step

    def save(self, step: int) -> None:
        """Write a checkpoint. Raises CheckpointError."""
        save_checkpoint(
            self.run.path,
            step=step,
            parts=self.parts,
            position=self._position(),
            keep_last=self.keep_last,
            ranks=self.ranks,
        )

    def _position(self) -> dict[str, object]:
        kept = {} if self.state is None else {"system": self.state.state()}
        begun = {} if self.stages is None else {"stages": self.stages.state()}
        return {**log_positions(self.run), **kept, **begun}
