"""Conversion of trajectories to training samples."""

from __future__ import annotations

from collections.abc import Sequence

from evoseek.types import Invalid, TrainingSample, TrajectoryGroup


def group_samples(group: TrajectoryGroup, advantages: Sequence[float | None]) -> list[TrainingSample]:
    """One sample for each member with an advantage: the advantage on its action tokens, 0 elsewhere.

    None leaves a member out, and so does a trajectory without an action. An Invalid member with an advantage is a
    ValueError: it was in a baseline where it does not belong.
    """
    samples: list[TrainingSample] = []
    for trajectory, outcome, advantage in zip(group.trajectories, group.outcomes, advantages, strict=True):
        if advantage is None or not trajectory.num_action_tokens:
            continue
        if isinstance(outcome, Invalid):
            raise ValueError(
                f"The trajectory {trajectory.id} is invalid ({outcome.reason}) and has the advantage {advantage}."
            )
        samples.append(
            TrainingSample(
                token_ids=trajectory.token_ids,
                loss_mask=trajectory.loss_mask,
                rollout_logprobs=trajectory.rollout_logprobs,
                advantages=tuple(advantage if acts else 0.0 for acts in trajectory.loss_mask),
                role=trajectory.role,
                group=group.key,
                policy_version=trajectory.policy_version,
            )
        )
    return samples
