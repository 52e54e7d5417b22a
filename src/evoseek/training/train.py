"""Training a run, or resuming it: the frame around `training.loop`."""

from __future__ import annotations

import asyncio
import gc
import math
import shlex
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from rich.console import Console

from evoseek.assembly.context import Objects
from evoseek.assembly.inputs import inputs_of, keep_feedback, read_questions
from evoseek.assembly.settings import TrainingSettings
from evoseek.config.registry import build, find
from evoseek.config.sections import changeable, defaults_of, with_setting
from evoseek.config.settings_tree import words_of
from evoseek.config.trust import names_code
from evoseek.credit import is_relative
from evoseek.errors import ConfigError, RunError, TrainingError
from evoseek.eval.draw import Drawn
from evoseek.eval.held_out import HeldOutScores, held_out_scores
from evoseek.learner.checkpoint import agreed_checkpoint
from evoseek.learner.distributed import ALONE, Ranks, gathered, is_orphaned, joined_ranks
from evoseek.protocols import MetricSink
from evoseek.rollout.roller import askable
from evoseek.storage.files import write_atomic
from evoseek.storage.metrics import JsonlMetrics, ManyMetrics, TrackedMetrics, counted, read_metrics
from evoseek.storage.runs import RunDirectory, flatten
from evoseek.text.printable import say
from evoseek.text.progress import STOPPING, LiveProgress
from evoseek.training.alarms import AlarmedMetrics
from evoseek.training.interrupt import stop_on_interrupt
from evoseek.training.loop import Evaluate, RunState, StepProgress, TrainingLoop
from evoseek.training.plan import TrainingContext, TrainingPlan
from evoseek.training.probe import WeightsProbe, probe_bound
from evoseek.training.stages import Stages, check_run, check_stages, settings_in

_BARS = "▁▂▃▄▅▆▇█"
_CURVE = 12  # held-out scores shown


def train_together(
    settings: TrainingSettings, run: RunDirectory, *, console: Console, objects: Objects | None = None
) -> Ended:
    """Train in all processes that were started together, or in this one. The first holds the run's lock, writes and
    prints. If one fails, all raise."""
    with joined_ranks(settings.policy.device) as ranks, ExitStack() as held:
        with ranks.setting_up():
            if ranks.is_first:
                held.enter_context(run.locked())
        own_console = console if ranks.is_first else Console(quiet=True)
        return train(settings, run, console=own_console, ranks=ranks, objects=objects)


class Ended(NamedTuple):
    """How training ended: the last step made, and whether Ctrl-C (or SIGTERM) ended it early."""

    step: int
    interrupted: bool


def train(
    settings: TrainingSettings,
    run: RunDirectory,
    *,
    console: Console,
    ranks: Ranks = ALONE,
    objects: Objects | None = None,
) -> Ended:
    """Train, or resume a run whose lock the caller holds. Ctrl-C finishes the step and saves."""
    notify = _once(partial(say, console))

    def should_stop() -> bool:
        return interrupted() or is_orphaned()

    def train_stage() -> tuple[int, bool, bool]:
        """Train to the end of the current stage, or of the run. Return the last step, whether the run continues with
        other settings, and whether it is at its end. Its memory is free when it returns."""
        with ExitStack() as held:
            with ranks.setting_up():
                made = training_loop(settings, run, notify=notify, ranks=ranks, objects=objects)
                loop = held.enter_context(made)
            begins = loop.stages is not None and loop.stages.begins_after(loop.start)
            if loop.start and not begins:
                notify(f"Resuming {run.path} after step {loop.start}.")
            if loop.stages is not None:
                notify(loop.stages.describe(loop.start))
            loop.progress, loop.should_stop = progress, should_stop
            loop.max_seconds = seconds_left(settings, run)  # from the log, without discarded steps
            step = asyncio.run(loop.run())
            return step, loop.has_turned, step >= loop.steps

    with (
        _recording_stop(run, ranks) as record,
        stop_on_interrupt(lambda: say(console, STOPPING)) as interrupted,
        TrainingProgress(console, max_seconds=seconds_left(settings, run)) as progress,
    ):
        step, has_turned, is_over = train_stage()
        while has_turned and not is_over and not ranks.any(should_stop()):
            gc.collect()  # before the model is loaded again: two may not fit
            step, has_turned, is_over = train_stage()
        if ranks.is_first:
            check_learnt(read_metrics(run.metrics), notify)
        ended = Ended(step, ranks.any(should_stop()))
        if ended.interrupted:
            record("Ctrl-C, or a signal to end (SIGTERM)")
        elif not is_over:
            record(f"run.max_minutes = {settings.run.max_minutes:g}; raise it to train on")
    _report_end(ended, settings, run, console, is_over=is_over, has_objects=objects is not None and objects.are_given)
    return ended


def curve(values: Sequence[float]) -> str:
    """Draw the last values as bars, from 0 (or less) to 1 (or more)."""
    last = values[-_CURVE:]
    return "".join(_BARS[min(max(round(value * (len(_BARS) - 1)), 0), len(_BARS) - 1)] for value in last)


class TrainingProgress(LiveProgress):
    """The live progress of training, called after every step. `max_seconds` is the training loop's limit."""

    def __init__(self, console: Console, *, max_seconds: float = math.inf) -> None:
        super().__init__(console, "step")
        self._max_seconds = max_seconds
        self._seconds = 0.0
        self._steps = 0
        self._held_out: list[float] = []

    def __call__(self, progress: StepProgress) -> None:
        if "step/seconds" in progress.timings:
            self._seconds += progress.timings["step/seconds"]
            self._steps += 1
        if math.isfinite(score := progress.metrics.get("eval/reward", math.nan)):  # NaN: all rollouts were Invalid
            self._held_out.append(score)
        self.show(progress.step, progress.steps, self.describe(progress))

    def describe(self, progress: StepProgress) -> str:
        """Return the numbers to watch, in one line, without numbers that the step did not measure."""
        metrics, timings = progress.metrics, progress.timings
        solver = "" if "rollout/stop/answered" in metrics else "solver/"
        learnt = "loss" if "demonstrations/num" in metrics else ""
        parts = [
            f"{label} {source[name]:{form}}{unit}"
            for label, source, name, form, unit in (
                ("loss", metrics, learnt, ".3f", ""),
                ("held-out loss", metrics, "eval/loss", ".3f", ""),
                ("reward", metrics, "reward", ".3f", ""),
                ("solver", metrics, "solver/reward", ".3f", ""),
                ("proposer", metrics, "proposer/reward", ".3f", ""),
                ("valid", metrics, "selfplay/valid_rate", ".1%", ""),
                ("answered", metrics, f"{solver}rollout/stop/answered", ".0%", ""),
                ("malformed", metrics, f"{solver}rollout/stop/malformed", ".0%", ""),
                ("cut off", metrics, f"{solver}rollout/stop/max_tokens", ".0%", ""),
                ("invalid", metrics, "rollout/invalid_frac", ".1%", ""),
                ("rollout", timings, "rollout/tokens_per_s", ".0f", " tok/s"),
                ("tool", timings, "tools/latency_s", ".4f", " s"),
            )
            if name in source
        ]
        if self._held_out:
            parts.insert(1, f"held-out {curve(self._held_out)} {self._held_out[-1]:.3f}")
        if progress.stage:
            parts.insert(0, f"stage {progress.stage}")
        if self._steps:
            parts.append(f"left {self._time_left(progress):.0f} s")
        return "  ".join(parts)

    def _time_left(self, progress: StepProgress) -> float:
        left = self._seconds / self._steps * (progress.steps - progress.step)
        return max(min(left, self._max_seconds - self._seconds), 0.0)


def check_learnt(rows: Sequence[Mapping[str, float | None]], notify: Callable[[str], None]) -> None:
    """Notify if a run made no optimizer step. Raises TrainingError if a loss or gradient was the cause."""
    last = {name: value for row in rows for name, value in row.items() if value is not None}
    if any(name.rpartition("/")[2] == "loss" for name in last):
        return
    counts = {
        what: sum(int(value) for name, value in last.items() if name.endswith(f"learner/skipped_{what}"))
        for what in ("non_finite", "no_signal")
    }
    words = "No optimizer step was made: the weights have not changed."
    if counts["non_finite"]:
        raise TrainingError(
            f"{words} In {counts['non_finite']} updates the loss or its gradient was not finite. Check the loss and "
            "the weights of the model; lower learner.learning_rate, or turn learner.bf16 off. Then begin a new run."
        )
    if counts["no_signal"]:
        notify(f"{words} {counts['no_signal']} updates had no rollout with an advantage.")


def _report_end(
    ended: Ended, settings: TrainingSettings, run: RunDirectory, console: Console, *, is_over: bool, has_objects: bool
) -> None:
    """Print where and why training ended, and the command that continues it, with the user's code that it must
    trust."""
    if ended.interrupted:
        say(console, f"Stopped after step {ended.step}. The same command resumes it.")
        return
    if not is_over:
        say(console, f"Trained {run.path} to step {ended.step}, where run.max_minutes ended it; raise it to resume.")
        return
    say(console, f"Trained {run.path} to step {ended.step}.")
    usual = with_setting(settings, "run.steps", defaults_of(settings).run.steps).planned_steps
    if usual > settings.run.steps == ended.step:
        own = {key: value for key, value in flatten(settings.resolved()).items() if names_code(value, key)}
        words = f"evoseek train --run-dir {shlex.quote(str(run.path))} --steps {usual}{words_of(own)}"
        words = "give the same parts and more run.steps." if has_objects else words
        say(console, f"Training ended because run.steps is {ended.step}. To train further: {words}")


@contextmanager
def _recording_stop(run: RunDirectory, ranks: Ranks) -> Generator[Callable[[str], None]]:
    """Record why a begun run ends early: by the yielded function, or an error by itself."""

    def record(reason: str) -> None:
        if ranks.is_first and run.config.is_file():
            with suppress(RunError):  # a full disk must not hide the reason itself
                write_atomic(run.stopped, reason)

    if ranks.is_first:
        run.stopped.unlink(missing_ok=True)
    try:
        yield record
    except BaseException as error:
        record(str(error) or type(error).__name__)
        raise


def seconds_left(settings: TrainingSettings, run: RunDirectory) -> float:
    """Return the seconds of steps that `run.max_minutes` leaves to a run; infinity without a limit."""
    if settings.run.max_minutes is None:
        return math.inf
    return 60 * settings.run.max_minutes - trained_seconds(run)


def trained_seconds(run: RunDirectory) -> float:
    """Return the seconds of a run's steps, those before a resume included."""
    return sum(row.get("step/seconds") or 0.0 for row in read_metrics(run.timings))


def _once(notify: Callable[[str], None]) -> Callable[[str], None]:
    """Return a function that passes each text on once: preparing every stage would repeat texts."""
    seen = set[str]()

    def notify_once(text: str) -> None:
        if text not in seen:
            seen.add(text)
            notify(text)

    return notify_once


@contextmanager
def training_loop(
    settings: TrainingSettings,
    run: RunDirectory,
    *,
    notify: Callable[[str], None],
    ranks: Ranks = ALONE,
    objects: Objects | None = None,
) -> Generator[TrainingLoop]:
    """Make a training loop that continues from the run's last checkpoint, in its current stage.

    Everything is checked before the directory gets its settings, so a mistake leaves no trace. The caller holds the
    run's lock. Every rank makes its own loop from the same settings. Raises EvoseekError.
    """
    check_run(settings, run, ranks.size)
    checkpoint = agreed_checkpoint(run.path, ranks)
    position = checkpoint.position if checkpoint else None
    stages = Stages.of(settings, position)
    own = settings if stages is None else settings_in(settings, stages.current)
    if ranks.is_first:
        keep_feedback(settings, run)
    ranks.barrier()
    with TrainingContext(own, run, checkpoint=checkpoint, ranks=ranks, notify=notify, objects=objects) as context:
        plan = _plan(own, context)
        if checkpoint is None:  # a later stage with too few could not be corrected when it begins
            check_stages(settings, context.asked)
        evaluation = _evaluation(context, plan)
        if ranks.is_first:
            _claim(run, settings, context)
        state = RunState(run, plan.parts, settings.run.keep_checkpoints, ranks, plan.state, stages)
        start = state.resume(checkpoint)
        notify(f"{context.trainer}")
        if ranks.is_first and stages is not None:
            stages.restore_rows(counted(read_metrics(run.metrics)))
        ranks.barrier()  # no rank waits below for weights from one that failed above
        plan.resumed(start)
        steps = settings.run.steps
        yield TrainingLoop(
            system=plan.system,
            checkpoints=state,
            metrics=_metrics(context, plan) if ranks.is_first else ManyMetrics(),
            timings=JsonlMetrics(run.timings) if ranks.is_first else ManyMetrics(),
            start=start,
            steps=steps if plan.steps is None else min(steps, plan.steps),
            checkpoint_every=settings.run.checkpoint_every,
            evaluate=evaluation,
            probe=WeightsProbe(
                [(plan.eval_roller.at(own.learnt_temperature), context.trainer.own_logprobs()), *plan.others],
                probe_bound(own),
                ranks,
            ),
            probe_every=settings.sampler.probe_every,
            evaluate_every=settings.evaluation.every if plan.is_due is None else 1,
            max_invalid=settings.run.max_invalid,
            pause_s=settings.run.pause_s,
            notify=notify,
            agree=ranks.any,
            stages=stages,
            drop=plan.drop,
        )


def _claim(run: RunDirectory, settings: TrainingSettings, context: TrainingContext) -> None:
    """Write the settings into the run's directory, or check that they equal those it was begun with."""
    objects = {"objects": names} if (names := context.objects.names()) else {}
    run.claim(
        settings.resolved() | objects,
        inputs_of(settings),
        may_differ=changeable(settings, "on_resume"),
        defaults=defaults_of(settings).resolved(),
    )


def _plan(settings: TrainingSettings, context: TrainingContext) -> TrainingPlan:
    plan: object = find("system", settings.run.system).build(settings, context)
    if not isinstance(plan, TrainingPlan):
        raise ConfigError(
            f"The system {settings.run.system} built {plan!r}. Expected its `build(settings, context)` to return a "
            "TrainingPlan, as `context.plan(system, solver)` makes one."
        )
    return plan


def _evaluation(context: TrainingContext, plan: TrainingPlan) -> Evaluate | None:
    """Return a function that scores the current policy on the held-out questions, a share on each rank; None if there
    is nothing to measure."""
    settings, ranks = context.settings, context.ranks
    if not settings.evaluation.path:
        return plan.measure
    questions = read_questions(settings.evaluation.path, setting="evaluation.path")[: settings.evaluation.limit]
    questions, left_out = askable(questions, plan.eval_roller, setting="evaluation.path")
    if left_out:
        context.notify(left_out)
    own = questions[ranks.rank :: ranks.size]
    roller = plan.eval_roller.at(settings.held_out_temperature)

    async def evaluate_now(step: int) -> Mapping[str, float]:
        if plan.is_due is not None and not plan.is_due(step):
            return {}
        share = await held_out_scores(own, roller=roller, metric=context.metric, reward=context.reward)
        own_numbers = {} if plan.measure is None else await plan.measure(step)
        return {**own_numbers, **(share if ranks.size == 1 else _together(share, ranks)).metrics()}

    return evaluate_now


def _together(evaluation: HeldOutScores, ranks: Ranks) -> HeldOutScores:
    """Join the shares of all ranks, on every rank."""
    shares = gathered(ranks, evaluation.drawn, tuple[Drawn, ...])
    return replace(evaluation, drawn=tuple(drawn for share in shares for drawn in share))


def _trackers(context: TrainingContext) -> Iterator[TrackedMetrics]:
    """Yield the trackers of the settings and those given as objects. The context closes them."""
    settings = context.settings.trackers
    own = [(tracker.name, build("tracker", tracker, context)) for tracker in settings]
    given = [(type(tracker).__name__, tracker) for tracker in context.objects.trackers]
    for number, (name, tracker) in enumerate([*own, *given], start=1):
        last = context.run.path / "trackers" / f"{number}-{name.rpartition(':')[2]}.step"
        tracked = TrackedMetrics(tracker, name, last=last, notify=context.notify)
        context.closing.callback(tracked.close)
        yield tracked


def _metrics(context: TrainingContext, plan: TrainingPlan) -> MetricSink:
    """Return the run's metrics with the trackers, and with warnings if nothing is learnt or an alarm is raised."""
    run = context.run
    return AlarmedMetrics(
        ManyMetrics(JsonlMetrics(run.metrics), *_trackers(context)),
        context.notify,
        earlier=counted(read_metrics(run.metrics)),
        relative=is_relative(context.trainer.credit),
        game=plan.is_game,
        trajectories=run.trajectories,
    )
