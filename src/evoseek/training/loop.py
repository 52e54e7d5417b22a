"""The loop around every system: steps, evaluation, logs, checkpoints, stopping and resuming."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Protocol, cast

from evoseek.errors import SamplerError, TrainingError
from evoseek.learner.checkpoint import CheckpointPart, restore, save_checkpoint
from evoseek.learner.distributed import ALONE, Ranks
from evoseek.protocols import MetricSink
from evoseek.storage.checkpoints import Checkpoint
from evoseek.storage.jsonl import ResumableJsonl
from evoseek.storage.metrics import TOO_MANY_INVALID
from evoseek.storage.runs import RunDirectory
from evoseek.training.rollout_metrics import StepReport, checked_report, describe_failures
from evoseek.training.stages import Stages

_INVALID_STEPS = 3  # number of successive steps with too many invalid rollouts that ends a run
_SLICE_S = 0.1  # seconds of a pause between checks whether to stop


class System(Protocol):
    """A training algorithm, one step at a time."""

    async def step(self, step: int) -> StepReport:
        """Make step number `step` (from 1)."""
        ...


@dataclass(frozen=True, slots=True)
class StepProgress:
    """The progress after a step, for a watcher. The numbers of `metrics` and `timings` are those written to the
    sinks; `stage` is the name of the run's stage, if it has stages."""

    step: int
    steps: int
    metrics: Mapping[str, float]
    timings: Mapping[str, float]
    stage: str = ""


Evaluate = Callable[[int], Awaitable[Mapping[str, float]]]


async def do_nothing() -> None:
    """Do nothing: there is nothing to drop."""


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
    """Writes a run's checkpoints, keeps the last `keep_last`, and resumes from one; all ranks together. `parts` are the
    models in training, `state` is what the system keeps."""

    run: RunDirectory
    parts: Mapping[str, CheckpointPart]
    keep_last: int
    ranks: Ranks = ALONE
    state: State | None = None
    stages: Stages | None = None

    def resume(self, checkpoint: Checkpoint | None) -> int:
        """Resume the run from the checkpoint of its parts, or begin it (None); return the number of finished steps.

        Optimizers, counters and the system's state are restored and the logs cut back; everything else is a function of
        the seed and the step. Raises RunError if a log is shorter than it was, or one that is read was changed.
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


@dataclass(slots=True)
class TrainingLoop:
    """Repeats a system's step, from `start` + 1 (0: a new run) to `steps`.

    A row of metrics is written for every step and, where `evaluate` is given, for step 0 before any training.
    `evaluate` runs every `evaluate_every` steps and after the last; its numbers join the step's row, and so do
    those of `probe`, every `probe_every` steps. `probe` also runs before anything else, since it may stop the run. A
    checkpoint is kept every `checkpoint_every` steps, after the last, and when it stops early: because `should_stop`
    says so, or because its steps have taken `max_seconds` (their evaluations included, as in `step/seconds`).

    After a step in which surely more than `max_invalid` of the rollouts are Invalid, on which nothing is trained, no
    checkpoint is saved: what failed may be the policy itself, with weights that cannot be sampled from. After three
    such steps in a row, or one at the end, training stops with TrainingError. Before the next step it waits for
    `pause_s` seconds, twice as long after the second one, so that the failed service may recover; `notify` is told why.
    A request to stop ends the pause. Stages and alarms do not see the row of such a step, which says so
    (`rollout/too_many_invalid`): what is left of it is biased towards few searches.

    `agree` turns one process's request to stop into the decision of all processes of the run.

    If the run has `stages`, the loop ends with the current one: it `has_turned` then, and its last checkpoint says that
    the next stage begins. A step after which no checkpoint is saved ends no stage.

    `drop` is awaited at the end of the loop, and after a step with too many invalid rollouts: those that
    the system has begun of later steps may have met the same failure, and begin again after the pause.
    """

    system: System
    checkpoints: RunState
    metrics: MetricSink
    timings: MetricSink
    start: int
    steps: int
    checkpoint_every: int
    evaluate: Evaluate | None = None
    evaluate_every: int = 0
    probe: Evaluate | None = None
    probe_every: int = 0
    max_invalid: float = 0.2
    max_seconds: float = math.inf
    should_stop: Callable[[], bool] = lambda: False
    agree: Callable[[bool], bool] = lambda wish: wish
    progress: Callable[[StepProgress], None] = lambda _: None
    pause_s: float = 0.0
    notify: Callable[[str], None] = lambda _: None
    stages: Stages | None = None
    drop: Callable[[], Awaitable[None]] = do_nothing
    has_turned: bool = field(default=False, init=False)

    async def run(self) -> int:
        """Train to the last step, or until stopped. Returns the last step made."""
        try:
            return await self._train()
        finally:
            await self.drop()

    async def _train(self) -> int:
        step = self.start
        if self.probe is not None and self.probe_every > 0:
            await self.probe(step)
        if step == 0 and self.evaluate is not None:
            self._log(0, await self.evaluate(0), {})
        failing, spent = 0, 0.0
        stopping = self.agree(self.should_stop() or spent >= self.max_seconds)
        while step < self.steps and not stopping:
            step += 1
            started = perf_counter()
            report = checked_report(type(self.system).__name__, await self.system.step(step))
            metrics = dict(report.metrics)
            failed = report.has_too_many_failures(self.max_invalid)
            if failed:
                metrics[TOO_MANY_INVALID] = 1.0
            if self.probe is not None and self.probe_every > 0 and step % self.probe_every == 0:
                try:
                    metrics |= await self.probe(step)
                except SamplerError:  # servers that are down; what the step counts decides
                    if not failed:
                        raise
            if self.evaluate is not None and self._is_due(step, self.evaluate_every):
                metrics |= await self.evaluate(step)
            seconds = perf_counter() - started
            spent += seconds
            self._log(step, metrics, {**report.timings, "step/seconds": seconds})
            failing = failing + 1 if failed else 0
            if failing == _INVALID_STEPS or (failing and step == self.steps):
                raise TrainingError(_too_many_failures(step, report, failing))
            if failing:
                await self.drop()
            if failing and spent < self.max_seconds and not self.should_stop():
                await self._pause(step, report, self.pause_s * 2 ** (failing - 1))
            self.has_turned = self._turn(step, failing=failing > 0)
            stopping = self.agree(self.should_stop() or spent >= self.max_seconds) or self.has_turned
            if not failing and (stopping or self._is_due(step, self.checkpoint_every)):
                self.checkpoints.save(step)
            elif failing and stopping:
                self.notify(
                    f"Step {step} is not kept, with so many of its rollouts invalid: the run is resumed from its last "
                    "checkpoint."
                )
        return step

    def _turn(self, step: int, *, failing: bool) -> bool:
        """Begin the next stage if one ends with this step, even the last, since a run may be extended; whether it
        did."""
        if self.stages is None:
            return False
        if warning := self.stages.warning():
            self.notify(warning)
        why = None if failing else self.stages.ended(step)
        ends = self.agree(why is not None)
        if ends:
            self.stages.begin_next(step + 1, why or "")
        return ends

    def _is_due(self, step: int, every: int) -> bool:
        return step == self.steps or (every > 0 and step % every == 0)

    async def _pause(self, step: int, report: StepReport, seconds: float) -> None:
        failures = describe_failures(report.failures, report.num_rollouts)
        self.notify(
            f"Step {step}: {failures} Nothing of the invalid ones was trained on. The next step begins in "
            f"{seconds:g} s."
        )
        end = perf_counter() + seconds
        while (left := end - perf_counter()) > 0 and not self.should_stop():
            await asyncio.sleep(min(left, _SLICE_S))

    def _log(self, step: int, metrics: Mapping[str, float], timings: Mapping[str, float]) -> None:
        stage = ""
        if self.stages is not None:
            stage, metrics = self.stages.current.name, {**metrics, "stage": float(len(self.stages.history))}
        if self.stages is not None and TOO_MANY_INVALID not in metrics:
            self.stages.observe(step, metrics)
        self.metrics.write(step, metrics)
        self.timings.write(step, timings)
        self.progress(StepProgress(step, self.steps, metrics, timings, stage))


def _too_many_failures(step: int, report: StepReport, in_a_row: int) -> str:
    failures = describe_failures(report.failures, report.num_rollouts)
    return (
        f"Training stopped at step {step}: {failures} Steps in a row with too many: {in_a_row}. Nothing of these "
        "rollouts was trained on, and no checkpoint was made of these steps. Repair what failed and give the same "
        "command again: it resumes from the last checkpoint."
    )
