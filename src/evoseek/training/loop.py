"""The training loop of every system: steps, evaluation, logs, checkpoints, stopping and resuming."""

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

_INVALID_STEPS = 3  # consecutive steps with too many invalid rollouts that end a run
_SLICE_S = 0.1  # seconds of a pause between checks whether to stop


class System(Protocol):
    """A training algorithm, one step at a time."""

    async def step(self, step: int) -> StepReport:
        """Make step number `step` (from 1)."""
        ...


@dataclass(frozen=True, slots=True)
class StepProgress:
    """The progress after a step, for a watcher: `metrics` and `timings` as written to the sinks, and the name of the
    run's `stage`, if it has stages."""

    step: int
    steps: int
    metrics: Mapping[str, float]
    timings: Mapping[str, float]
    stage: str = ""


Evaluate = Callable[[int], Awaitable[Mapping[str, float]]]


async def do_nothing() -> None:
    """Drop nothing."""


class State(Protocol):
    """The state of a system between steps, saved in each checkpoint."""

    def state(self) -> Mapping[str, Any]:
        """Return the state as plain JSON."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore from `state`; an empty mapping resets."""
        ...


def log_positions(run: RunDirectory) -> dict[str, Mapping[str, object]]:
    """Return the positions of a run's logs, for a checkpoint: `logs`, their lengths in bytes, and `digests`, SHA-256 of
    the logs that a resumed run reads. Flush them to the disk first."""
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
    """The checkpoints of a run: written by all ranks together, the last `keep_last` kept. `parts` are the models in
    training, `state` is the system's state."""

    run: RunDirectory
    parts: Mapping[str, CheckpointPart]
    keep_last: int
    ranks: Ranks = ALONE
    state: State | None = None
    stages: Stages | None = None

    def resume(self, checkpoint: Checkpoint | None) -> int:
        """Resume the run from a checkpoint, or begin it (None); return the number of finished steps.

        Restores optimizers, counters and the system's state, and cuts the logs back; all else is a function of the seed
        and the step. Raises RunError if a log is shorter than it was, or one that is read was changed.
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
    """The loop that repeats a system's step, from `start` + 1 (0: a new run) to `steps`.

    Every step writes a row of metrics; with `evaluate`, so does step 0 before training. `evaluate` runs every
    `evaluate_every` steps and after the last, `probe` every `probe_every` steps; their numbers join the step's row.
    `probe` also runs before anything else, since it may stop the run. A checkpoint is saved every `checkpoint_every`
    steps, after the last, and when the loop stops early: because of `should_stop`, or because its steps have taken
    `max_seconds` (evaluations included, as in `step/seconds`).

    If surely more than `max_invalid` of a step's rollouts are Invalid, the step trains on nothing and saves no
    checkpoint: the policy itself may have failed, with weights that cannot be sampled from. After three such steps in a
    row, or one at the end, training stops with TrainingError. Before the next step the loop waits for `pause_s`
    seconds, twice as long after the second one, so that the failed service may recover; `notify` gets the reason. A
    request to stop ends the pause. Stages and alarms do not see the row of such a step (`rollout/too_many_invalid`):
    its remaining rollouts are biased towards few searches.

    `agree` turns one process's request to stop into a decision of all processes.

    If the run has `stages`, the loop ends with the current one: it `has_turned`, and its last checkpoint begins the
    next stage. A step without a checkpoint for failures ends no stage.

    `drop` is awaited at the end of the loop, and after a step with too many invalid rollouts: rollouts of later steps
    may have met the same failure, and begin again after the pause.
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
                except SamplerError:  # of servers that are down; the step's counts decide
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
                    f"Step {step} had too many invalid rollouts and is not kept: the run resumes from its last "
                    "checkpoint."
                )
        return step

    def _turn(self, step: int, *, failing: bool) -> bool:
        """Begin the next stage if one ends with this step, even the last, since a run may be extended; return whether
        one began."""
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
            f"Step {step}: {failures} Nothing was trained on the invalid ones. The next step begins in {seconds:g} s."
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
        f"Training stopped at step {step}: {failures} Consecutive steps with too many: {in_a_row}. Nothing was "
        "trained on these rollouts, and these steps have no checkpoint. Repair what failed, and run the same "
        "command again: it resumes from the last checkpoint."
    )
