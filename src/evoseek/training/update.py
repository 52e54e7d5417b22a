"""From a step's scored groups to optimizer steps.

GroupUpdate: without a critic: REINFORCE, RLOO, GRPO, DAPO, GSPO, DSPO.

Only the credit function and the learner's loss distinguish them:

    credit      rewards and group keys to one advantage a rollout        (evoseek.credit)
    loss        what the learner differentiates                          (evoseek.loss)
    batches     `mini_batches` optimizer steps on every batch of rollouts; after the first, ratios differ from 1

TwoRoleUpdate: one policy that plays two roles, trained on both in the same optimizer steps (Search Self-play).

    for each of `mini_batches` parts of the step's groups:
        gradient = the gradient of each role's loss over its part, added up
        one optimizer step

Each role has its own credit and loss, divided by its own counts. In Search Self-play the solver learns by GRPO, a mean
over tokens, and the proposer by REINFORCE, a sum over a rollout's tokens. Their gradients differ in size by about the
length of a rollout, so the proposer's outweighs the solver's, and clipping the norm of the sum scales both.

PPOUpdate: PPO (arXiv 1707.06347) for rollouts of many turns: a critic, the value function, predicts the expected return
at every action token.

    values      V(s_t) of the critic, before the first optimizer step
    rewards     the outcome's reward on the last action token; minus the KL penalty on each, if there is one
    advantages  generalised advantage estimation over the action tokens, whitened over the batch
    updates     in every mini-batch one step of the critic on the clipped value loss, one of the policy on its own loss

Tool results are not the policy's actions and are left out of the sequence, so the first token after a result follows
the token before it. PPO fails with its critic: until the critic is trained, the advantages are noise
(`critic_warmup_steps` trains only the critic for some steps).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from statistics import fmean
from typing import Any

from evoseek.credit import advantages_of, estimates_of, whiten
from evoseek.learner.learner import LearnerBase
from evoseek.loss.base import LossFn, LossInputs, ValueInputs
from evoseek.types import Scored, TrainingSample, Trajectory, TrajectoryGroup

SampleTransform = Callable[[Sequence[TrainingSample]], list[TrainingSample]]

Update = Callable[[int, Sequence[TrajectoryGroup]], dict[str, float]]
"""Makes the optimizer steps of a step from its groups; returns their metrics."""


@dataclass(frozen=True, slots=True)
class GroupUpdate:
    """An update with one advantage per rollout, the same on all of its tokens.

    `transforms` add, in order, what the credit needs besides the sampler's logprobs. `compared` add what the loss
    compares with its forward pass: logprobs of a reference policy, or those that replace the sampler's as
    `old_logprobs` (see `prepared`). The KL penalty of `kl_coefficient` is subtracted from the rewards. Without
    `mask_observations`, an ablation, tool results are trained on as if the policy had written them. `loss` replaces the
    learner's own if roles share the learner. A step without groups is also counted.
    """

    learner: LearnerBase[LossInputs]
    credit: Any
    seed: int
    mini_batches: int = 1
    transforms: Sequence[SampleTransform] = ()
    compared: Sequence[SampleTransform] = ()
    kl_coefficient: float = 0.0
    mask_observations: bool = True
    loss: LossFn[LossInputs] | None = None

    def __call__(self, step: int, groups: Sequence[TrajectoryGroup]) -> dict[str, float]:
        return mean_metrics([self.learner.update(batch, self.loss) for batch in self.batches(step, groups)])

    def batches(self, step: int, groups: Sequence[TrajectoryGroup]) -> list[list[TrainingSample]]:
        """Return the samples of each mini-batch, ready for the learner."""
        rng = random.Random(f"{self.seed}/mini-batches/{step}")
        return [self.prepared(batch) for batch in split_groups(self.samples(groups), self.mini_batches, rng)]

    def prepared(self, batch: Sequence[TrainingSample]) -> list[TrainingSample]:
        """Add, before the batch's first optimizer step, what a mini-batch's loss compares with its forward pass.

        In bfloat16 a forward pass rounds differently with other tokens in its rows. So each mini-batch is scored alone,
        with only its samples with a gradient, as the learner passes them. With the same weights the two logprobs are
        then equal bit for bit, and rounding is never clipped as if it were a change of policy.
        """
        if not self.compared:
            return list(batch)
        loss = self.loss or self.learner.loss
        in_pass = [loss.contributes(sample) for sample in batch]
        samples = list(compress(batch, in_pass))
        for complete in self.compared:
            samples = complete(samples)
        scored = iter(samples)
        return [next(scored) if passed else sample for sample, passed in zip(batch, in_pass, strict=True)]

    def samples(self, groups: Sequence[TrajectoryGroup]) -> list[TrainingSample]:
        """Return a sample with advantages for each scored rollout to which the credit gives one."""
        samples, rewards = self.scored(groups)
        rollouts = in_rollouts(samples)
        rewards = [reward for sample, reward in zip(samples, rewards, strict=True) if not sample.part]
        if self.kl_coefficient:
            costs = (sum(sum(kl_penalties(one, self.kl_coefficient)) for one in own) for own in rollouts)
            rewards = [reward - cost for reward, cost in zip(rewards, costs, strict=True)]
        advantages = advantages_of(self.credit, rewards, [own[0].group for own in rollouts])
        return [
            replace(sample, advantages=tuple(advantage if acts else 0.0 for acts in sample.loss_mask))
            for own, advantage in zip(rollouts, advantages, strict=True)
            if advantage is not None
            for sample in self.weighted(own)
        ]

    def weighted(self, rollout: Sequence[TrainingSample]) -> Sequence[TrainingSample]:
        """Weigh a rollout's samples by their shares of its tokens, if the loss takes a mean of each sequence: the
        rollout then counts as one sequence, however many samples it has."""
        if len(rollout) == 1:
            return rollout
        loss: Any = self.loss or self.learner.loss
        loss = getattr(loss, "loss", loss)  # without the terms around it
        if "sequence" not in (getattr(loss, "level", ""), str(getattr(loss, "aggregate", "")).partition("-mean-")[0]):
            return rollout
        tokens = sum(sum(sample.loss_mask) for sample in rollout)
        return [replace(sample, weight=sample.weight * sum(sample.loss_mask) / tokens) for sample in rollout]

    def scored(self, groups: Sequence[TrajectoryGroup]) -> tuple[list[TrainingSample], list[float]]:
        """Return the samples without advantages, and their rewards."""
        return scored_samples(groups, self.transforms, mask_observations=self.mask_observations)


def scored_samples(
    groups: Sequence[TrajectoryGroup], transforms: Sequence[SampleTransform] = (), *, mask_observations: bool = True
) -> tuple[list[TrainingSample], list[float]]:
    """Return the samples without advantages, and for each the reward, of every scored rollout with an action. The
    sampler's record is the reference of ratios, unless a transform replaces it."""
    scored = [
        (_sample(own, group.key, part), outcome.reward)
        for group in groups
        for trajectory, outcome in zip(group.trajectories, group.outcomes, strict=True)
        if isinstance(outcome, Scored)
        for part, own in enumerate(one for one in trajectory.branches if one.num_action_tokens)
    ]
    samples, rewards = [sample for sample, _ in scored], [reward for _, reward in scored]
    written = [sample.loss_mask for sample in samples]
    if not mask_observations:
        samples = [_unmask(sample) for sample in samples]
    for complete in transforms:
        samples = complete(samples)
    if not mask_observations:
        samples = [_record_own(sample, mask) for sample, mask in zip(samples, written, strict=True)]
    return samples, rewards


def in_rollouts(samples: Sequence[TrainingSample]) -> list[list[TrainingSample]]:
    """Gather the samples of each rollout, which follow each other."""
    rollouts: list[list[TrainingSample]] = []
    for sample in samples:
        if not sample.part:
            rollouts.append([])
        rollouts[-1].append(sample)
    return rollouts


def kl_penalties(sample: TrainingSample, coefficient: float) -> list[float]:
    """Return a penalty for each token [T]: `coefficient` x the k1 estimate of KL(policy, reference), 0.0 off the mask.

    Both logprobs are the learner's: before the first update the penalty is 0, however the sampler rounds.
    """
    pairs = zip(sample.old_logprobs or (), sample.ref_logprobs or (), strict=True)
    return [coefficient * (logprob - ref_logprob) for logprob, ref_logprob in pairs]


def split_groups(samples: Sequence[TrainingSample], parts: int, rng: random.Random) -> list[list[TrainingSample]]:
    """Split samples at random into at most `parts` mini-batches of whole groups, differing by at most one group.

    There is at least one, empty without samples, so that the step is counted. A single one keeps the samples' order.
    """
    groups: dict[str, list[TrainingSample]] = {}
    for sample in samples:
        groups.setdefault(sample.group, []).append(sample)
    keys, parts = list(groups), min(parts, len(groups))
    if parts <= 1:
        return [list(samples)]
    rng.shuffle(keys)
    return [[sample for key in keys[part::parts] for sample in groups[key]] for part in range(parts)]


def mean_metrics(updates: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return each metric's mean over the updates that have it. Numbers of samples are summed; a run's counters keep the
    last value, and the difference between sampler and learner the first, before any step."""

    def total(name: str, values: list[float]) -> float:
        if name.startswith("learner/skipped"):
            return values[-1]
        if name.startswith("sampling/sampling_logp_difference"):
            return values[0]
        return sum(values) if name.startswith("learner/samples") else fmean(values)

    names = {name: None for update in updates for name in update}
    return {name: total(name, [update[name] for update in updates if name in update]) for name in names}


def _unmask(sample: TrainingSample) -> TrainingSample:
    first = sample.loss_mask.index(True)
    return replace(sample, loss_mask=tuple(position >= first for position in range(len(sample.loss_mask))))


def _record_own(sample: TrainingSample, written: Sequence[bool]) -> TrainingSample:
    """Use the learner's own logprobs for tokens that the sampler did not write, so that both are equal there."""
    rows = zip(sample.rollout_logprobs, sample.old_logprobs or (), written, strict=True)
    return replace(sample, rollout_logprobs=tuple(record if acts else mine for record, mine, acts in rows))


def _sample(trajectory: Trajectory, group: str, part: int) -> TrainingSample:
    record = trajectory.rollout_logprobs
    versions = [segment.policy_version for segment in trajectory.segments if segment.kind == "action"]
    return TrainingSample(
        token_ids=trajectory.token_ids,
        loss_mask=trajectory.loss_mask,
        rollout_logprobs=record,
        old_logprobs=record,
        advantages=(0.0,) * len(record),
        role=trajectory.role,
        group=group,
        policy_version=trajectory.policy_version if versions[0] is None else versions[0],
        id=trajectory.id,
        part=part,
    )


@dataclass(frozen=True, slots=True)
class TwoRoleUpdate:
    """An update on the groups of several roles by name. A role without samples is left out.

    A role's own update makes its samples with advantages, and has its loss. There are no more mini-batches than groups
    of any role, so that every role is in each. A role's metrics are named <role>/...
    """

    learner: LearnerBase[LossInputs]
    roles: Mapping[str, GroupUpdate]
    seed: int
    mini_batches: int = 1

    def __call__(self, step: int, groups: Mapping[str, Sequence[TrajectoryGroup]]) -> dict[str, float]:
        """Make advantages and mini-batches of whole groups of every role, with one optimizer step each. Groups of a
        role that is not among `roles` are not trained on."""
        made = {name: role.samples(groups[name]) for name, role in self.roles.items() if groups.get(name)}
        samples = {name: own for name, own in made.items() if own}
        fewest = min((len({sample.group for sample in own}) for own in samples.values()), default=1)
        parts = min(self.mini_batches, fewest)
        batches = {
            name: split_groups(own, parts, random.Random(f"{self.seed}/mini-batches/{name}/{step}"))
            for name, own in samples.items()
        }
        batches = {name: [self.roles[name].prepared(part) for part in own] for name, own in batches.items()}
        updates = [
            self.learner.update_together(
                [(own[part], self.roles[name].loss or self.learner.loss) for name, own in batches.items()]
            )
            for part in range(parts)
        ]
        metrics = mean_metrics([whole for whole, _ in updates])
        for number, name in enumerate(batches):
            own = mean_metrics([terms[number] for _, terms in updates])
            metrics |= {f"{name}/{key}": value for key, value in own.items()}
        return metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class PPOUpdate(GroupUpdate):
    """An update by PPO. The last of the `transforms` fills in the samples' `values`, and `credit` makes advantages and
    returns from rewards and values. The policy is updated after the critic has made `critic_warmup_steps` steps. The
    critic's metrics are named critic/..."""

    critic: LearnerBase[ValueInputs]
    critic_warmup_steps: int = 0

    def __call__(self, step: int, groups: Sequence[TrajectoryGroup]) -> dict[str, float]:
        is_warm = step > self.critic_warmup_steps <= self.critic.step
        batches = self.batches(step, groups)
        critic = mean_metrics([self.critic.update(batch) for batch in batches])
        metrics = {f"critic/{name.removeprefix('critic/')}": value for name, value in critic.items()}
        if is_warm:
            metrics |= mean_metrics([self.learner.update(batch) for batch in batches])
        return metrics

    def samples(self, groups: Sequence[TrajectoryGroup]) -> list[TrainingSample]:
        """Return the samples with whitened advantages and with the returns, which are the critic's targets."""
        samples, rewards = self.scored(groups)
        estimates = [self._estimate(sample, reward) for sample, reward in zip(samples, rewards, strict=True)]
        advantages = whiten([advantages for advantages, _ in estimates])
        return [
            replace(sample, advantages=_on_actions(sample, own), returns=_on_actions(sample, returns))
            for sample, own, (_, returns) in zip(samples, advantages, estimates, strict=True)
        ]

    def _estimate(self, sample: TrainingSample, reward: float) -> tuple[list[float], list[float]]:
        rewards = [0.0] * sum(sample.loss_mask)
        if self.kl_coefficient:
            rewards = [-cost for cost in compress(kl_penalties(sample, self.kl_coefficient), sample.loss_mask)]
        rewards[-1] += reward
        return estimates_of(self.credit, rewards, list(compress(sample.values or (), sample.loss_mask)))


def _on_actions(sample: TrainingSample, values: Sequence[float]) -> tuple[float, ...]:
    """Return values of the action tokens at their positions in the sequence; 0.0 elsewhere."""
    given = iter(values)
    return tuple(next(given) if acts else 0.0 for acts in sample.loss_mask)
