"""Search-R1 (arXiv 2503.09516) with GRPO (arXiv 2402.03300): a policy learns to search from questions with answers.

    for step = 1 .. steps:
        draw a batch of questions
        for every question, G rollouts of the policy with the search engine in the loop
        reward = exact match of the answer
        advantage = (reward - mean of its group) / (std of its group + eps)
        one optimizer step on the clipped objective, on the tokens that the policy wrote: passages are masked

Left out of the paper's recipe: the critic (PPO is the paper's other estimator) and the reference policy's KL term,
which one on-policy step a batch does not need. It fails when no rollout of a question ever succeeds, or all do: such a
group has no signal (`frac_reward_zero_std` counts them).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Literal, Protocol

from evoseek.credit.group import group_advantages
from evoseek.learner.learner import Learner
from evoseek.protocols import Environment, Renderer, RewardFn, Sampler
from evoseek.rollout.group import run_group
from evoseek.rollout.limits import Limits
from evoseek.rollout.record import TrajectoryWriter
from evoseek.rollout.samples import group_samples
from evoseek.systems.question_order import questions_of_step
from evoseek.systems.rollout_metrics import rollout_metrics, tool_latency_s
from evoseek.systems.training import StepReport
from evoseek.types import Invalid, Question, Scored, TrajectoryGroup


class TrainedSampler(Sampler, Protocol):
    """A sampler whose policy changes between steps."""

    policy_version: int

    def reset(self) -> None:
        """Forget everything that was computed with the weights so far."""
        ...


@dataclass(frozen=True, slots=True)
class SearchR1:
    """One training step of Search-R1; `systems.training.TrainingLoop` repeats it.

    `questions_per_step` x `group_size` rollouts a step, drawn at `temperature`, which must be the learner's too.
    `scale` is the advantage's denominator: "std" as in GRPO, "none" for the difference to the mean alone.
    """

    questions: Sequence[Question]
    env: Environment
    renderer: Renderer
    sampler: TrainedSampler
    limits: Limits
    reward: RewardFn
    learner: Learner
    trajectories: TrajectoryWriter
    seed: int
    questions_per_step: int = 20
    group_size: int = 8
    temperature: float = 1.0
    scale: Literal["std", "none"] = "std"

    async def step(self, step: int) -> StepReport:
        """Rollouts, rewards, advantages, one optimizer step."""
        started = perf_counter()
        groups = await self.rollouts(step)
        rolled_out = perf_counter()
        advantages = self.advantages(groups)
        samples = [
            sample for group, values in zip(groups, advantages, strict=True) for sample in group_samples(group, values)
        ]
        metrics = rollout_metrics(groups) | self.learner.update(samples)
        self.sampler.policy_version = step
        self.sampler.reset()
        finished = perf_counter()
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

    async def rollouts(self, step: int) -> list[TrajectoryGroup]:
        """All groups of a step, concurrently; written to the trajectory file in the questions' order."""
        batch = questions_of_step(self.questions, seed=self.seed, step=step, size=self.questions_per_step)
        groups = await asyncio.gather(
            *(
                run_group(
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
                for question in batch
            )
        )
        self.trajectories.write(step, groups)
        return groups

    def advantages(self, groups: Sequence[TrajectoryGroup]) -> list[list[float | None]]:
        """An advantage for each rollout of each group; None for the invalid ones, which are no part of the baseline."""
        rewards = [o.reward if isinstance(o, Scored) else None for group in groups for o in group.outcomes]
        keys = [group.key for group in groups for _ in group.outcomes]
        values = iter(group_advantages(rewards, keys, scale=self.scale))
        return [[next(values) for _ in group.outcomes] for group in groups]
