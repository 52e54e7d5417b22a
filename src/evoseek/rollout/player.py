"""A policy that plays a role: all that a rollout needs besides its question."""

from __future__ import annotations

from dataclasses import dataclass

from evoseek.protocols import Environment, Renderer, RewardFn, Sampler
from evoseek.rollout.group import run_group
from evoseek.rollout.limits import Limits
from evoseek.rollout.run import run_trajectory
from evoseek.types import Question, Trajectory, TrajectoryGroup


@dataclass(frozen=True, slots=True)
class Player:
    """An environment, who acts in it, and how far."""

    env: Environment
    renderer: Renderer
    sampler: Sampler
    limits: Limits
    temperature: float
    seed: int

    def has_room(self, question: Question) -> bool:
        """Whether the prompt leaves room for a whole turn, or for half of all tokens where a turn may be longer."""
        prompt, total = self.renderer.render_prompt(self.env.messages(question)), self.limits.max_total_tokens
        return len(prompt) + min(self.limits.max_tokens_per_turn, total // 2) <= total

    async def play(self, question: Question, trajectory_id: str) -> Trajectory:
        """One rollout; see `run_trajectory`."""
        return await run_trajectory(
            question,
            env=self.env,
            renderer=self.renderer,
            sampler=self.sampler,
            limits=self.limits,
            trajectory_id=trajectory_id,
            temperature=self.temperature,
            seed=self.seed,
        )

    async def group(self, question: Question, *, size: int, reward: RewardFn, key: str) -> TrajectoryGroup:
        """Rollouts of one question, side by side, scored; see `run_group`."""
        return await run_group(
            question,
            size=size,
            reward=reward,
            key=key,
            env=self.env,
            renderer=self.renderer,
            sampler=self.sampler,
            limits=self.limits,
            temperature=self.temperature,
            seed=self.seed,
        )
