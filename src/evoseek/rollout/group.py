"""Trajectories of one question, rolled out side by side and scored."""

from __future__ import annotations

import asyncio

from evoseek.errors import ToolError
from evoseek.protocols import Environment, Renderer, RewardFn, Sampler
from evoseek.rollout.limits import Limits
from evoseek.rollout.run import run_trajectory
from evoseek.types import Invalid, Outcome, Question, StopReason, Trajectory, TrajectoryGroup


async def run_group(
    question: Question,
    *,
    size: int,
    reward: RewardFn,
    key: str,
    env: Environment,
    renderer: Renderer,
    sampler: Sampler,
    limits: Limits,
    temperature: float,
    seed: int,
    refills: int = 2,
) -> TrajectoryGroup:
    """Roll out `size` trajectories, with ids `<key>/0`, `<key>/1`, ..., and score each as soon as it ends.

    An Invalid member is rolled out again, at most `refills` times, as `<key>/<i>r1`, `<key>/<i>r2`, ...: an id of its
    own has luck of its own. The attempts that it replaces are in `replaced`; the last one stays, whatever came of it.
    """

    async def attempt(trajectory_id: str) -> tuple[Trajectory, Outcome]:
        trajectory = await run_trajectory(
            question,
            env=env,
            renderer=renderer,
            sampler=sampler,
            limits=limits,
            trajectory_id=trajectory_id,
            temperature=temperature,
            seed=seed,
        )
        return trajectory, await score(trajectory, reward)

    async def member(index: int) -> tuple[Trajectory, Outcome, list[tuple[Trajectory, Invalid]]]:
        replaced: list[tuple[Trajectory, Invalid]] = []
        trajectory, outcome = await attempt(f"{key}/{index}")
        while isinstance(outcome, Invalid) and len(replaced) < refills:
            replaced.append((trajectory, outcome))
            trajectory, outcome = await attempt(f"{key}/{index}r{len(replaced)}")
        return trajectory, outcome, replaced

    members = await asyncio.gather(*(member(index) for index in range(size)))
    return TrajectoryGroup(
        key,
        tuple(trajectory for trajectory, _, _ in members),
        tuple(outcome for _, outcome, _ in members),
        tuple(failed for _, _, replaced in members for failed in replaced),
    )


async def score(trajectory: Trajectory, reward: RewardFn) -> Outcome:
    """The outcome of a trajectory. A failed one is Invalid and not scored; so is one whose reward cannot be had."""
    if trajectory.stop_reason.is_failure:
        return Invalid(trajectory.stop_reason, trajectory.failure or "")
    try:
        return await reward(trajectory)
    except ToolError as error:
        return Invalid(StopReason.REWARD_FAILED, str(error))
