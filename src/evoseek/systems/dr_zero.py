"""Dr. Zero (arXiv 2601.07055): a proposer and a solver that make each other better, from a corpus alone.

    for iteration = 1 .. iterations:
        proposer_steps times:                                        the solver is frozen
            for fresh passages, a requested number of hops each (4:3:2:1):
                one question and answer, written by searching hops - 1 times;  the solver's attempts at it
            reward = difficulty + format;  advantage = (reward - mean) / std over the questions of equal requested hops
            one optimizer step of the proposer without clipping (HRPO)
        writing_steps times:                                         the proposer is frozen
            several questions a passage; the best by format is kept, failures and duplicates are dropped
        solver_steps times:
            GRPO on the written questions, each once before any comes again, with a fresh optimizer

The proposer keeps weights and optimizer over the iterations and gets new passages; the solver keeps its weights. With
`one_policy` one policy plays both roles, with one optimizer that is fresh in each phase, or else kept through all. Dr.
Zero fails if most of the proposer's answers are wrong: the solver learns them, or to stop after the first hop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from evoseek.assembly.settings import ColdStartSettings, RunSettings, StepQuestionSettings
from evoseek.config.sections import MANY, AnyTemperature, Count, Needs, Section, table
from evoseek.errors import TrainingError
from evoseek.rollout.environments import PassageProposerEnv
from evoseek.rollout.record import TrajectoryWriter
from evoseek.rollout.settings import GroupRolloutSettings
from evoseek.selfplay.episode import EpisodeSeconds, SelfPlay
from evoseek.selfplay.metrics import selfplay_metrics
from evoseek.selfplay.question_log import QuestionLog, best_questions
from evoseek.selfplay.settings import GameSettings, ProposerSettings
from evoseek.selfplay.tasks import TaskSource, check_groups, proposal_groups, solver_groups
from evoseek.systems.search_r1 import SearchR1
from evoseek.training.rollout_metrics import StepReport, describe_failures, prefixed, too_many_failures
from evoseek.types import Episode, Invalid, Passage, Question, TrajectoryGroup
from evoseek.world.world import Oracle

if TYPE_CHECKING:
    from evoseek.selfplay.game import Game
    from evoseek.training.plan import TrainingContext, TrainingPlan
    from evoseek.training.update import Update

Phase = Literal["propose", "write", "solve"]

_OUTAGE = 0.2  # share of a writing step's proposals; if more fail, its questions are a biased selection
_WRITING_TRIES = 3


@dataclass(frozen=True, slots=True)
class ScheduledStep:
    """The place of a step in the schedule: the `number`-th step (from 1) of a phase of an iteration (from 1)."""

    iteration: int
    phase: Phase
    number: int


class PassageProposerSettings(ProposerSettings):
    """The proposer of questions from passages."""

    show_source: bool = Field(
        default=True, description="Whether the proposer is shown the source passage; false is an ablation."
    )
    frozen_after: int | None = Field(
        default=None,
        ge=0,
        le=MANY,
        description="Number of iterations after which the proposer's weights are frozen, as in DARC (arXiv "
        "2601.13761); 0: from the start. Default: never.",
    )

    @classmethod
    def effects(cls) -> tuple[Needs, ...]:
        return *super().effects(), Needs("frozen_after", "dr_zero.one_policy", (False,))


class PhaseSettings(Section):
    """The phases of Dr. Zero, in each of its iterations."""

    iterations: Count = Field(default=3, description="Number of iterations.")
    proposer_steps: int = Field(default=5, ge=0, le=MANY, description="Number of steps that train the proposer.")
    writing_steps: Count = Field(default=2, description="Number of steps that write questions for the solver.")
    solver_steps: Count = Field(default=15, description="Number of steps that train the solver.")
    one_policy: bool = Field(
        default=False,
        description="Whether one policy plays both roles, instead of two from the same model.",
    )
    fresh_optimizer: bool = Field(
        default=True,
        description="Whether the solver gets a new optimizer in every iteration; with one_policy, both roles do, since "
        "they share it.",
    )
    passages_per_writing_step: Count = Field(default=60, description="Number of passages in a writing step.")
    questions_per_passage: int = Field(
        default=5, ge=1, le=1000, description="Number of questions written per passage; the best is kept."
    )
    writing_temperature: AnyTemperature | None = Field(
        default=None, description="Sampling temperature of written questions; 0 is greedy. Default: the proposer's."
    )

    @property
    def iteration_steps(self) -> int:
        return self.proposer_steps + self.writing_steps + self.solver_steps

    @property
    def steps(self) -> int:
        return self.iterations * self.iteration_steps

    def place(self, step: int) -> ScheduledStep:
        iteration, index = divmod(step - 1, self.iteration_steps)
        if index < self.proposer_steps:
            return ScheduledStep(iteration + 1, "propose", index + 1)
        index -= self.proposer_steps
        if index < self.writing_steps:
            return ScheduledStep(iteration + 1, "write", index + 1)
        return ScheduledStep(iteration + 1, "solve", index - self.writing_steps + 1)

    def last(self, phase: Phase, step: int) -> int:
        """Return the last step of a phase among the first `step` steps; 0 if none."""
        return next((number for number in range(step, 0, -1) if self.place(number).phase == phase), 0)


@dataclass(slots=True)
class DrZero:
    """Dr. Zero (arXiv 2601.07055): a proposer and a solver that make each other better, from a corpus alone.

    `training.loop.TrainingLoop` repeats `step`. `play` trains the proposer, `writing` lets it write questions, and
    `solving` trains the solver on them. After `frozen_after` iterations the proposer's phase only measures.
    `publish_proposer` hands the proposer's new weights to its sampler. `restart_solver` and `restart_proposer` give a
    role a fresh optimizer in every iteration (None: it is kept).
    """

    phases: PhaseSettings
    play: SelfPlay
    writing: SelfPlay
    tasks: TaskSource[Passage]
    written_tasks: TaskSource[Passage]
    solving: SearchR1
    proposer_update: Update
    publish_proposer: Callable[[int], None]
    restart_solver: Callable[[], None] | None
    questions: QuestionLog
    trajectories: TrajectoryWriter
    proposals_per_step: int
    group_by: Literal["requested", "task"] = "requested"
    frozen_after: int | None = None
    oracle: Oracle | None = None
    restart_proposer: Callable[[], None] | None = None

    class Settings(GameSettings):
        """Settings of Dr. Zero."""

        run: RunSettings = RunSettings(system="dr-zero", steps=MANY)  # the phases end it
        rollout: GroupRolloutSettings = GroupRolloutSettings()  # pyright: ignore[reportIncompatibleVariableOverride]
        questions: StepQuestionSettings = StepQuestionSettings()
        proposer: PassageProposerSettings = table()  # pyright: ignore[reportIncompatibleVariableOverride]
        dr_zero: PhaseSettings = PhaseSettings()
        cold_start: ColdStartSettings = ColdStartSettings()

        @property
        def searches(self) -> tuple[int, str]:
            """The searches of the longest question; the first hop is in the passage."""
            return max(0, self.longest - 1), "hops"

        def problems(self) -> Iterator[str]:
            """Yield a problem if freezing the proposer has no effect, or one policy has two temperatures."""
            yield from super().problems()
            after, own = self.proposer.frozen_after, self.dr_zero
            if own.one_policy:
                yield from self.one_temperature("with dr_zero.one_policy")
            if after is not None and (after >= own.iterations or not own.proposer_steps):
                yield (
                    f"proposer.frozen_after is {after}, but with dr_zero.iterations {own.iterations} and "
                    f"dr_zero.proposer_steps {own.proposer_steps} this changes nothing. Leave "
                    "it out."
                )

        @property
        def planned_steps(self) -> int:
            return min(self.run.steps, self.dr_zero.steps)

        @property
        def policies(self) -> int:
            return 1 if self.dr_zero.one_policy else 2

        @property
        def proposer_learns(self) -> bool:
            return self.dr_zero.proposer_steps > 0 and self.proposer.frozen_after != 0

        @property
        def group_by(self) -> Literal["requested", "task"]:
            """Groups by the requested number (HRPO); with nested sampling, by passage."""
            return "requested" if self.proposer.per_task == 1 else "task"

    @classmethod
    def build(cls, settings: Settings, context: TrainingContext) -> TrainingPlan:
        """Build the plan with two policies that begin as the same model."""
        from evoseek.selfplay.game import Game  # imports torch, which the settings do not need

        own, shown = settings.dr_zero, settings.proposer.show_source
        game = Game.load(settings, context, PassageProposerEnv, one_policy=own.one_policy)
        solver = game.solver
        questions = QuestionLog(context.run.questions, context.ranks, context.reviewed)
        rollouts = context.rollouts(game.play.solver, settings.rollout, game.play.label)
        restart = context.trainer.learner.restart if own.fresh_optimizer else None
        system = cls(
            phases=own,
            play=game.play,
            writing=replace(game.play, proposer=game.play.proposer.at(own.writing_temperature)),
            tasks=game.passage_tasks("training", settings.proposer.per_task, shown=shown),
            written_tasks=game.passage_tasks("writing", own.questions_per_passage, shown=shown),
            solving=SearchR1(
                [],
                rollouts,
                context.trainer.update(),
                context.publish,
                settings.questions.per_step,
                max_invalid=settings.run.max_invalid,
            ),
            proposer_update=game.proposer_update(),
            publish_proposer=game.publish_proposer,
            restart_solver=restart,
            questions=questions,
            trajectories=rollouts.trajectories,
            proposals_per_step=settings.selfplay.proposals_per_step,
            group_by=settings.group_by,
            frozen_after=settings.proposer.frozen_after,
            oracle=game.oracle,
            restart_proposer=restart if game.has_one_policy else None,  # its momentum is the solver's
        )

        def resumed(step: int) -> None:
            after = system.frozen_after
            learning = step if after is None else min(step, own.iteration_steps * after)
            solved, proposed = own.last("solve", step), own.last("propose", learning)
            if game.has_one_policy:
                context.publish(max(solved, proposed))
                return
            solver.sampler.update_weights(solved)
            game.proposer.sampler.update_weights(proposed)

        def is_due(step: int) -> bool:
            """Return whether an evaluation is due: before training, and while the solver learns, at the given interval
            and at the end of its phase."""
            place, every = own.place(max(1, step)), settings.evaluation.every
            last = place.number == own.solver_steps
            return step == 0 or (place.phase == "solve" and (last or (every > 0 and place.number % every == 0)))

        plan = game.plan(system, system.solving.passes)
        return replace(plan, resumed=resumed, steps=own.steps, is_due=is_due)

    @classmethod
    def proposing(cls, settings: Settings, context: TrainingContext) -> tuple[Game, TaskSource[Passage]]:
        """Return the game for writing questions without training, with the two policies of a run or one in both
        roles."""
        from evoseek.selfplay.game import Game

        one_policy = settings.dr_zero.one_policy or context.checkpoint is None
        game = Game.load(settings, context, PassageProposerEnv, one_policy=one_policy)
        own = settings.proposer
        return game, game.passage_tasks("proposing", own.per_task, shown=own.show_source)

    _solving: tuple[int, SearchR1] | None = field(default=None, init=False)

    async def step(self, step: int) -> StepReport:
        place = self.phases.place(step)
        if place.phase == "propose":
            report = await self._propose(step, place)
        elif place.phase == "write":
            report = await self._write(step, place)
        else:
            report = await self._solve(step, place)
        return replace(report, metrics={**report.metrics, "selfplay/iteration": float(place.iteration)})

    async def _propose(self, step: int, place: ScheduledStep) -> StepReport:
        if place.number == 1 and self.restart_proposer is not None:
            self.restart_proposer()
        started, stages = perf_counter(), EpisodeSeconds()
        tasks = self.tasks(self._drawn(place) * self.proposals_per_step, self.proposals_per_step, f"{step:06d}")
        episodes = await self.play(tasks, f"step-{step:06d}", stages=stages)
        played = perf_counter()
        groups = self._record(step, episodes)
        metrics = self._metrics(episodes)
        if self.frozen_after is None or place.iteration <= self.frozen_after:
            has_failed = too_many_failures(_played(episodes), self.solving.max_invalid)
            metrics |= prefixed("proposer", self.proposer_update(step, () if has_failed else groups))
            self.publish_proposer(step)
        return _report(episodes, metrics, stages, played - started, perf_counter() - played)

    def _drawn(self, place: ScheduledStep) -> int:
        """Return the number of earlier steps of the same phase: no passage is used twice before all were used."""
        phase_steps = self.phases.proposer_steps if place.phase == "propose" else self.phases.writing_steps
        return (place.iteration - 1) * phase_steps + place.number - 1

    async def _write(self, step: int, place: ScheduledStep) -> StepReport:
        """Write questions for the solver: the best one of every passage."""
        started, stages, count = perf_counter(), EpisodeSeconds(), self.phases.passages_per_writing_step
        tasks = self.written_tasks(self._drawn(place) * count, count, f"{step:06d}")
        episodes = await self._written(step, tasks, stages)
        earlier = self.questions.read(step - place.number + 1, step - 1)
        written = best_questions(episodes, earlier, self.writing.near_duplicates)
        if place.number == self.phases.writing_steps and not (earlier or written):
            raise TrainingError(_no_question(place, episodes))
        self.questions.append(step, written)
        metrics = self._metrics(episodes)
        metrics["selfplay/written"] = float(len(written))
        return _report(episodes, metrics, stages, perf_counter() - started, 0.0)

    async def _written(self, step: int, tasks: Sequence[Question], stages: EpisodeSeconds) -> list[Episode]:
        """Return a writing step's proposals. If too many failed outside the policies, repeat all, since the solver
        would otherwise learn from an outage. Raises TrainingError if repeating does not help."""
        failures: list[Invalid] = []
        for attempt in range(_WRITING_TRIES):
            key = f"step-{step:06d}/again-{attempt}" if attempt else f"step-{step:06d}"
            episodes = await self.writing(tasks, key, solve=False, stages=stages)
            self._record(step, episodes)
            failures = [episode.outcome for episode in episodes if isinstance(episode.outcome, Invalid)]
            too_many = too_many_failures(_played(episodes), self.solving.max_invalid)
            if len(failures) <= _OUTAGE * len(episodes) and not too_many:
                return episodes
        raise TrainingError(_outage(step, failures, len(tasks)))

    async def _solve(self, step: int, place: ScheduledStep) -> StepReport:
        if place.number == 1:
            self.solving.passes.restore({})  # the questions are new
            if self.restart_solver is not None:
                self.restart_solver()
        if self._solving is None or self._solving[0] != place.iteration:
            self._solving = place.iteration, self._begin_solving(step, place)
        report = await self._solving[1].step(step)
        return replace(report, metrics=prefixed("solver", report.metrics))

    def _begin_solving(self, step: int, place: ScheduledStep) -> SearchR1:
        first = step - place.number - self.phases.writing_steps + 1
        questions = self.questions.read(first, step - place.number)
        per_step = min(self.solving.questions_per_step, len(questions))
        return replace(self.solving, questions=questions, questions_per_step=per_step)

    def _metrics(self, episodes: Sequence[Episode]) -> dict[str, float]:
        play = self.play
        return selfplay_metrics(episodes, oracle=self.oracle, metric=play.metric)

    def _record(self, step: int, episodes: Sequence[Episode]) -> list[TrajectoryGroup]:
        groups = proposal_groups(episodes, self.group_by)
        self.trajectories.write(step, [*groups, *solver_groups(episodes), *check_groups(episodes)])
        return groups


def _outage(step: int, failures: Sequence[Invalid], proposals: int) -> str:
    return (
        f"Training stopped at step {step}, which writes questions and was tried {_WRITING_TRIES} times. The last time "
        f"{describe_failures(failures, proposals, 'proposals')} None of them was written or trained on. Repair what "
        "failed, and run the same command again: it resumes from the last checkpoint."
    )


def _no_question(place: ScheduledStep, episodes: Sequence[Episode]) -> str:
    rejections = Counter(episode.rejected for episode in episodes if episode.rejected is not None)
    reasons = ", ".join(f"{reason} ({count})" for reason, count in rejections.most_common())
    return (
        f"The proposer wrote no valid question in iteration {place.iteration}, so the solver has nothing to learn "
        f"from. Reasons for rejection among the {len(episodes)} proposals of its last writing step: {reasons}. Begin "
        "a new run that loosens the filter or the verification that rejects most (--model RUN takes the policy of this "
        "run), or use a model whose proposals are valid more often."
    )


def _report(
    episodes: Sequence[Episode], metrics: Mapping[str, float], stages: EpisodeSeconds, rollout_s: float, train_s: float
) -> StepReport:
    timings = {**stages.timings(), "rollout/seconds": rollout_s, "learner/seconds": train_s}
    return StepReport.of(_played(episodes), metrics, timings)


def _played(episodes: Sequence[Episode]) -> list[TrajectoryGroup]:
    """Return the groups whose failures count: of both roles, without the readings that verify."""
    return [*proposal_groups(episodes, "task"), *solver_groups(episodes)]
