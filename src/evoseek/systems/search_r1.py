"""Search-R1 (arXiv 2503.09516): a policy learns to search from questions with answers.

    for step = 1 .. steps:
        draw a batch of questions
        for every question, G rollouts of the policy with the search engine in the loop
        reward = exact match of the answer
        advantages and optimizer steps: the update (GRPO by default; REINFORCE, PPO, ... are others), on the tokens
        that the policy wrote: passages are masked

It fails when no rollout of a question ever succeeds, or all do: for a group-relative update such a group has no signal
(`frac_reward_zero_std` counts them).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

from evoseek.learner.distributed import ALONE, Ranks
from evoseek.protocols import Environment, Renderer, RewardFn, Sampler
from evoseek.rollout.findings import failed_if_nothing_found
from evoseek.rollout.group import run_group
from evoseek.rollout.limits import Limits
from evoseek.rollout.record import TrajectoryWriter
from evoseek.rollout.trajectory_json import group_from_json, group_to_json
from evoseek.training.loop import StepReport
from evoseek.training.question_order import questions_of_step
from evoseek.training.rollout_metrics import rollout_metrics, tool_latency_s
from evoseek.training.update import Update
from evoseek.types import Invalid, Question, TrajectoryGroup


@dataclass(frozen=True, slots=True)
class Rollouts:
    """The rollouts of a step: every group, and those of them that are trained on, with numbers about the choice."""

    groups: Sequence[TrajectoryGroup]
    trained: Sequence[TrajectoryGroup]
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class QuestionRollouts:
    """Rolls a policy out on questions: `group_size` times each, all at once, drawn at `temperature`.

    `label` may score a group anew, when all of its rollouts are there. With several `ranks` each takes a share of the
    questions, and all have all groups in the end (their tool latencies aside). The groups are written to `trajectories`
    by the first. Where the engine finds nothing for any of them, all are Invalid.
    """

    env: Environment
    renderer: Renderer
    sampler: Sampler
    limits: Limits
    reward: RewardFn
    trajectories: TrajectoryWriter
    seed: int
    group_size: int = 8
    temperature: float = 1.0
    ranks: Ranks = ALONE
    label: Callable[[TrajectoryGroup], TrajectoryGroup] | None = None

    async def __call__(self, questions: Sequence[Question], step: int) -> list[TrajectoryGroup]:
        """One group a question, in the questions' order. No question is rolled out twice in a step."""
        own = questions[self.ranks.rank :: self.ranks.size]
        groups = await asyncio.gather(*(self._group(question, step) for question in own))
        if self.ranks.size > 1:
            shares = self.ranks.gather([group_to_json(group) for group in groups])
            groups = [
                group_from_json(shares[index % self.ranks.size][index // self.ranks.size])
                for index in range(len(questions))
            ]
        groups = failed_if_nothing_found(groups)
        if self.ranks.is_first:
            self.trajectories.write(step, groups)
        return groups

    async def _group(self, question: Question, step: int) -> TrajectoryGroup:
        group = await run_group(
            question,
            size=self.group_size,
            reward=self.reward,
            key=f"step-{step:06d}/{question.id}",
            env=self.env,
            renderer=self.renderer,
            sampler=self.sampler,
            limits=self.limits,
            temperature=self.temperature,
            seed=self.seed,
        )
        return self.label(group) if self.label else group


@dataclass(frozen=True, slots=True)
class SearchR1:
    """One training step of Search-R1; `systems.training.TrainingLoop` repeats it.

    `publish` hands the new weights to the sampler, as the policy of that step. `first_step` is the step that begins to
    go through the questions: where these are written during a run, that is a later one than its first.
    """

    questions: Sequence[Question]
    rollouts: QuestionRollouts
    update: Update
    publish: Callable[[int], None]
    questions_per_step: int = 20
    first_step: int = 1

    async def step(self, step: int) -> StepReport:
        """Rollouts, rewards, advantages, optimizer steps."""
        started = perf_counter()
        rollouts = await self.collect(step)
        rolled_out = perf_counter()
        metrics = {**rollout_metrics(rollouts.groups), **rollouts.metrics, **self.update(step, rollouts.trained)}
        self.publish(step)
        finished = perf_counter()
        groups = rollouts.groups
        action_tokens = sum(trajectory.num_action_tokens for group in groups for trajectory in group.trajectories)
        return StepReport(
            metrics=metrics,
            timings={
                "rollout/tokens_per_s": action_tokens / (rolled_out - started),
                "rollout/seconds": rolled_out - started,
                "learner/seconds": finished - rolled_out,
                "tools/latency_s": tool_latency_s(groups),
            },
            failures=tuple(outcome for group in groups for outcome in group.outcomes if isinstance(outcome, Invalid)),
            num_rollouts=sum(len(group.outcomes) for group in groups),
        )

    async def collect(self, step: int) -> Rollouts:
        """The step's rollouts: all of them are trained on."""
        groups = await self.rollouts(self.draw(step, self.questions_per_step), step)
        return Rollouts(groups, groups, {})

    def draw(self, step: int, size: int) -> list[Question]:
        """The `size` questions that a step may ask."""
        number = step - self.first_step + 1
        return questions_of_step(self.questions, seed=self.rollouts.seed, step=number, size=size)
