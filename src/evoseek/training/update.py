"""From a step's scored groups to optimizer steps.

GroupUpdate: without a critic: REINFORCE, RLOO, GRPO, DAPO, GSPO, DSPO.

Only the credit function and the learner's loss distinguish them:

    credit      rewards and group keys to one advantage a rollout, or one a turn  (evoseek.credit)
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress, islice, repeat
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
    """An update with one advantage per rollout, the same on all of its tokens, or one for each of its turns.

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
        """Return the samples with advantages of each scored rollout to which the credit gives one."""
        attempts = self.scored(groups)
        rewards = [attempt.reward - sum(self._costs(attempt)) for attempt in attempts]
        keys = [attempt.group for attempt in attempts]
        given = advantages_of(self.credit, rewards, keys, [attempt.trajectory for attempt in attempts])
        pairs = zip(attempts, given, strict=True)
        return [sample for attempt, own in pairs if own is not None for sample in attempt.with_advantages(own)]

    def scored(self, groups: Sequence[TrajectoryGroup]) -> list[ScoredRollout]:
        """Return the attempts, with samples without advantages."""
        return scored_attempts(groups, self.transforms, mask_observations=self.mask_observations)

    def _costs(self, attempt: ScoredRollout) -> list[float]:
        """Return the KL penalty of each action token."""
        if not self.kl_coefficient:
            return [0.0] * sum(sum(sample.loss_mask) for sample in attempt.samples)
        return [
            cost
            for sample in attempt.samples
            for cost in compress(kl_penalties(sample, self.kl_coefficient), sample.loss_mask)
        ]


@dataclass(frozen=True, slots=True)
class ScoredRollout:
    """A scored rollout. Its samples, one for each branch with an action, share its group and its reward."""

    trajectory: Trajectory
    group: str
    reward: float
    samples: tuple[TrainingSample, ...]

    def with_advantages(self, given: float | Sequence[float]) -> list[TrainingSample]:
        """Return the samples with one advantage, or one for each turn, which counts up to the next turn."""
        branches = [branch for branch in self.trajectory.branches if branch.num_action_tokens]
        turns = iter(given) if isinstance(given, Sequence) else repeat(given)
        made: list[TrainingSample] = []
        for sample, branch in zip(self.samples, branches, strict=True):
            advantage, values = 0.0, list[float]()
            for segment in branch.segments:
                advantage = next(turns) if segment.kind == "action" else advantage
                values += [advantage] * len(segment.token_ids)
            kept = (value if acts else 0.0 for value, acts in zip(values, sample.loss_mask, strict=True))
            made.append(replace(sample, advantages=tuple(kept)))
        return made


def scored_attempts(
    groups: Sequence[TrajectoryGroup], transforms: Sequence[SampleTransform] = (), *, mask_observations: bool = True
) -> list[ScoredRollout]:
    """Return the scored rollouts with an action; their samples have no advantages. The sampler's record is the
    reference of ratios, unless a transform replaces it."""
    attempts = [
        ScoredRollout(trajectory, group.key, outcome.reward, _samples(trajectory, group.key))
        for group in groups
        for trajectory, outcome in zip(group.trajectories, group.outcomes, strict=True)
        if isinstance(outcome, Scored) and trajectory.num_action_tokens
    ]
    samples = [sample for attempt in attempts for sample in attempt.samples]
    written = [sample.loss_mask for sample in samples]
    if not mask_observations:
        samples = [_unmask(sample) for sample in samples]
    for complete in transforms:
        samples = complete(samples)
    if not mask_observations:
        samples = [_record_own(sample, mask) for sample, mask in zip(samples, written, strict=True)]
    made = iter(samples)
    return [replace(attempt, samples=tuple(islice(made, len(attempt.samples)))) for attempt in attempts]


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


def _samples(trajectory: Trajectory, group: str) -> tuple[TrainingSample, ...]:
    return tuple(
        TrainingSample(
            token_ids=branch.token_ids,
            loss_mask=branch.loss_mask,
            rollout_logprobs=(record := branch.rollout_logprobs),
            old_logprobs=record,
            advantages=(0.0,) * len(record),
            role=branch.role,
            group=group,
            policy_version=branch.policy_version,
            id=branch.id,
        )
        for branch in trajectory.branches
        if branch.num_action_tokens
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
        attempts = self.scored(groups)
        estimates = [self._estimate(attempt) for attempt in attempts]
        advantages = whiten([advantages for advantages, _ in estimates])
        made: list[TrainingSample] = []
        for attempt, values, (_, returns) in zip(attempts, advantages, estimates, strict=True):
            own, targets = iter(values), iter(returns)
            made += [
                replace(sample, advantages=_on_actions(sample, own), returns=_on_actions(sample, targets))
                for sample in attempt.samples
            ]
        return made

    def _estimate(self, attempt: ScoredRollout) -> tuple[list[float], list[float]]:
        """Return the advantages and returns of the action tokens of all branches, in their order."""
        rewards = [-cost for cost in self._costs(attempt)]
        rewards[-1] += attempt.reward
        values = [value for s in attempt.samples for value in compress(s.values or (), s.loss_mask)]
        return estimates_of(self.credit, rewards, values)


def _on_actions(sample: TrainingSample, values: Iterator[float]) -> tuple[float, ...]:
    """Put the next values at the positions of the action tokens in the sequence; 0.0 elsewhere."""
    return tuple(next(values) if acts else 0.0 for acts in sample.loss_mask)
