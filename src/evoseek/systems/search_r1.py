"""Search-R1 (arXiv 2503.09516): a policy learns to search, from questions with answers.

    for step = 1 .. steps:
        draw a batch of questions
        for every question, G rollouts of the policy with the search engine in the loop
        reward = exact match of the answer
        advantages and optimizer steps: the update (GRPO by default; REINFORCE, PPO, ... are others), on the tokens
        that the policy wrote: passages are masked

With `rollout.max_staleness` = n the rollouts of the next n steps run while a step trains (`training.rollouts.Ahead`).

It fails if no rollout of a question ever succeeds, or all do: in a group-relative update such a group has no signal
(`frac_reward_zero_std` counts these groups).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

from pydantic import Field

from evoseek.assembly.settings import ColdStartSettings, QuestionSettings, StageSettings, TrainingSettings
from evoseek.protocols import QuestionEngine, SearchEngine
from evoseek.rollout.settings import QuestionRolloutSettings
from evoseek.training.question_order import Passes, QuestionOrder, chosen
from evoseek.training.rollout_metrics import (
    StepReport,
    metrics_by,
    rollout_metrics,
    signal_metrics,
    staleness_metrics,
    too_many_failures,
    tool_latency_s,
)
from evoseek.types import Question, TrajectoryGroup

if TYPE_CHECKING:
    from evoseek.training.plan import TrainingContext, TrainingPlan
    from evoseek.training.rollouts import Ahead, QuestionRollouts
    from evoseek.training.update import Update


@dataclass(frozen=True, slots=True)
class Rollouts:
    """The rollouts of a step: every group, and the trained groups, with metrics of the choice."""

    groups: Sequence[TrajectoryGroup]
    trained: Sequence[TrajectoryGroup]
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class SearchR1:
    """Search-R1 (arXiv 2503.09516): a policy learns to search, from questions with answers.

    `training.loop.TrainingLoop` repeats `step`. `publish` hands the new weights to the sampler, as the policy of that
    step. `order` chooses the questions of a step in `passes` over them; some metrics are reported by the values of its
    field, or else by the number of hops. With `ahead` the rollouts of later steps run while the update runs in a
    thread, so `collect` is called for several steps at a time; the sampler must not read what the update changes. If
    surely more than `max_invalid` of a step's attempts failed, nothing is trained on, and no question counts as taken.
    """

    questions: Sequence[Question]
    rollouts: QuestionRollouts
    update: Update
    publish: Callable[[int], None]
    questions_per_step: int = 20
    order: QuestionOrder = field(default_factory=QuestionOrder)
    passes: Passes = field(default_factory=Passes)
    ahead: Ahead[Rollouts] | None = None
    max_invalid: float = 1.0

    class Settings(TrainingSettings):
        """Settings of Search-R1."""

        questions: QuestionSettings = QuestionSettings()
        cold_start: ColdStartSettings = ColdStartSettings()
        rollout: QuestionRolloutSettings = QuestionRolloutSettings()  # pyright: ignore[reportIncompatibleVariableOverride]
        stages: tuple[StageSettings, ...] = Field(
            default=(),
            description="Stages of the run: tables with a name, an end (steps, or until: a condition on the "
            "mean of a metric `over` some steps), and settings that differ, such as questions.where.",
        )

        def problems(self) -> Iterator[str]:
            """Yield a problem if a cold start has no index, or a stage other than the last has no end."""
            yield from super().problems()
            if self.cold_start.questions and not self.searches_index:
                yield (
                    f"cold_start.questions is {self.cold_start.questions}, which are written about the documents of an "
                    "index, but training searches none. Set cold_start.questions to 0, or search.index and search.name."
                )
            names = [stage.name for stage in self.stages]
            if twice := next((name for name in names if names.count(name) > 1), None):
                yield f"Two stages have the name {twice}. Give each its own name."
            for number, stage in enumerate(self.stages, 1):
                has_end, is_last = bool(stage.until) or stage.steps is not None, number == len(self.stages)
                if is_last and has_end:
                    yield (
                        f"The stage {stage.name} is the last one and lasts as long as the run (run.steps). Leave out "
                        "its steps and until, or add a stage."
                    )
                if not is_last and not has_end:
                    yield f"The stage {stage.name} has no end, but another one follows. Set its steps, or until."

    @classmethod
    def build(cls, settings: Settings, context: TrainingContext) -> TrainingPlan:
        return cls.plan(settings, context, context.searched)

    @classmethod
    def plan(
        cls, settings: Settings, context: TrainingContext, searched: SearchEngine | QuestionEngine | None, **own: Any
    ) -> TrainingPlan:
        """Return the plan of a system that trains on questions by searching this engine; `own` are its further
        fields."""
        ahead = _ahead(settings)
        context.report_models()
        solver = context.solver(searched)
        asked = settings.questions
        questions = chosen(context.questions(solver), asked.where)
        order = QuestionOrder.of(asked)
        order(questions, seed=0, step=1, size=asked.per_step, passes=Passes())  # refuse before anything is loaded
        system = cls(
            questions,
            context.rollouts(solver, settings.rollout),
            context.trainer.update(),
            context.publish,
            asked.per_step,
            order=order,
            ahead=ahead,
            max_invalid=settings.run.max_invalid,
            **own,
        )
        return context.plan(system, solver, state=system.passes, ahead=ahead)

    async def step(self, step: int) -> StepReport:
        started = perf_counter()
        rollouts, seconds = await self._rolled_out(step)
        rolled_out, groups = perf_counter(), rollouts.groups
        self.rollouts.trajectories.write(step, groups)
        has_failed = too_many_failures(groups, self.max_invalid)
        metrics = {
            **rollout_metrics(groups),
            **metrics_by(groups, self.order.by or "hops", signal_metrics),
            **rollouts.metrics,
            **await self._updated(step, () if has_failed else rollouts.trained),
        }
        self.passes.count(step, () if has_failed else {group.trajectories[0].question.id for group in groups})
        self.publish(step)
        finished = perf_counter()
        action_tokens = sum(trajectory.num_action_tokens for group in groups for trajectory in group.trajectories)
        timings = {
            "rollout/tokens_per_s": action_tokens / seconds,
            "rollout/seconds": rolled_out - started,
            "learner/seconds": finished - rolled_out,
            "tools/latency_s": tool_latency_s(groups),
        }
        return StepReport.of(groups, metrics, timings)

    async def _rolled_out(self, step: int) -> tuple[Rollouts, float]:
        if self.ahead is not None:
            return await self.ahead.take(step, self.collect)
        started = perf_counter()
        rollouts = await self.collect(step)
        return rollouts, perf_counter() - started

    async def _updated(self, step: int, groups: Sequence[TrajectoryGroup]) -> dict[str, float]:
        """Update the policy; rollouts of later steps, if any, continue in the event loop."""
        if self.ahead is None:
            return self.update(step, groups)
        return staleness_metrics(groups, step) | await asyncio.to_thread(self.update, step, groups)

    async def collect(self, step: int) -> Rollouts:
        groups = await self.rollouts(self.draw(step, self.questions_per_step), step)
        return Rollouts(groups, groups, {})

    def draw(self, step: int, size: int) -> list[Question]:
        return self.order(self.questions, seed=self.rollouts.roller.seed, step=step, size=size, passes=self.passes)


def _ahead(settings: SearchR1.Settings) -> Ahead[Rollouts] | None:
    """Return the collector of rollouts ahead of training; None if the settings want none."""
    steps = settings.rollout.max_staleness
    if steps == 0:
        return None
    from evoseek.training.rollouts import Ahead  # imports torch, which the settings do not need

    return Ahead(steps, settings.run.steps)
