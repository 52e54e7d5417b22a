"""Supervised learning that can be interrupted: a step's number alone determines its batch.

The work folder holds `recipe.json`, `checkpoints/` and in the end `losses.jsonl`. The caller brings a policy with its
learner, and the batches from any step on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from evoseek.errors import ConfigError
from evoseek.learner.checkpoint import CheckpointPart, restore, save_checkpoint
from evoseek.learner.learner import Learner
from evoseek.loss.base import LossInputs
from evoseek.models.load import prepare_process, save_policy
from evoseek.models.policy import Policy
from evoseek.storage.checkpoints import Checkpoint, latest_checkpoint
from evoseek.storage.files import write_atomic
from evoseek.types import TrainingSample

RECIPE = "recipe.json"


@dataclass(slots=True)
class SupervisedRun:
    """A policy in supervised training: `losses` has an entry for each of the `step` steps made. `recipe` is a text of
    everything that affects it. Nothing is written before the first step."""

    work: Path
    recipe: str
    policy: Policy
    learner: Learner[LossInputs]
    step: int
    losses: list[float]

    @classmethod
    def begin(
        cls,
        work: Path,
        recipe: str,
        load: Callable[[Checkpoint | None], Policy],
        make_learner: Callable[[Policy], Learner[LossInputs]],
    ) -> SupervisedRun:
        """Begin or resume a run; `load` gives a checkpoint's policy, or the first one. Raises ConfigError if `work` was
        begun with another recipe."""
        _check(work, recipe)
        found = latest_checkpoint(work)
        policy = load(found)
        prepare_process(policy)
        learner = make_learner(policy)
        if found is None:
            return cls(work, recipe, policy, learner, 0, [])
        restore(found, "policy", learner)
        losses = found.position["losses"]
        made = [float(loss) for loss in losses] if isinstance(losses, list) else []
        return cls(work, recipe, policy, learner, found.step, made)

    def train(
        self,
        batches: Iterator[Sequence[TrainingSample]],
        steps: int,
        *,
        progress: Callable[[int, float], None] = lambda step, loss: None,
        should_stop: Callable[[], bool] = lambda: False,
        checkpoint_every: int = 50,
    ) -> bool:
        """Train to the last step on these batches, beginning with the next step's. `progress` gets each loss: nan for a
        skipped step. Return whether the last step is reached and `losses.jsonl` written."""
        self.work.mkdir(parents=True, exist_ok=True)
        write_atomic(self.work / RECIPE, self.recipe)
        while self.step < steps and not should_stop():
            loss = self.learner.update(next(batches)).get("loss", math.nan)
            self.step += 1
            self.losses.append(loss)
            progress(self.step, loss)
            if self.step % checkpoint_every == 0 or self.step == steps or should_stop():
                self._save()
        if self.step < steps:
            return False
        numbered = [(number, loss) for number, loss in enumerate(self.losses, start=1) if not math.isnan(loss)]
        lines = (json.dumps({"step": number, "loss": loss}) + "\n" for number, loss in numbered)
        write_atomic(self.work / "losses.jsonl", "".join(lines))
        return True

    def _save(self) -> None:
        part = CheckpointPart(partial(save_policy, self.policy), self.learner)
        save_checkpoint(self.work, step=self.step, parts={"policy": part}, position={"losses": self.losses})


def _check(work: Path, recipe: str) -> None:
    path = work / RECIPE
    if path.exists() and path.read_text(encoding="utf-8") != recipe:
        raise ConfigError(
            f"{work} holds the work of another recipe (see {path}). Give another folder, or delete this one."
        )
