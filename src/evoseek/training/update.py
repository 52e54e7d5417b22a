"""From a step's scored groups to optimizer steps.

GroupUpdate: without a critic: REINFORCE, RLOO, GRPO, DAPO, GSPO, DSPO.

Which of them it is lies in the credit function and in the learner's loss alone:

    credit      rewards and group keys to one advantage a rollout        (evoseek.credit)
    loss        what the learner differentiates                          (evoseek.loss)
    batches     `mini_batches` optimizer steps on every batch of rollouts; after the first, ratios leave 1

TwoRoleUpdate: one policy that plays two roles, trained on both in the same optimizer steps (Search Self-play).

    for each of `mini_batches` parts of the step's groups:
        gradient = the gradient of each role's loss over its part, added up
        one optimizer step

Each role has its own credit and loss, divided by its own counts. In Search Self-play the solver learns by GRPO, a mean
over tokens, and the proposer by REINFORCE, a sum over a rollout's tokens: the gradients differ in size by about the
length of a rollout, so that the proposer's outweighs the solver's, and clipping the norm of the sum scales both.

PPOUpdate: PPO (arXiv 1707.06347) for rollouts of many turns: a critic, the value function, predicts the expected return
at every action token.

    values      V(s_t) of the critic, before the first optimizer step
    rewards     the outcome's reward on the last action token; minus the KL penalty on each, if there is one
    advantages  generalised advantage estimation over the action tokens, whitened over the batch
    updates     in every mini-batch one step of the critic on the clipped value loss, one of the policy on its own loss

Tool results are not the policy's actions: they are left out of the sequence, so the token before a result is followed
by the first token after it. It fails if its critic does: until the critic is trained, the advantages are noise
(`critic_warmup_steps` trains only the critic for some steps).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from operator import add
from statistics import fmean
from typing import Protocol

from evoseek.credit.advantages import CriticCredit, whiten
from evoseek.learner.base import LearnerBase
from evoseek.loss.base import LossFn, LossInputs, ValueInputs
from evoseek.types import Invalid, Scored, TrainingSample, TrajectoryGroup

Credit = Callable[[Sequence[float | None], Sequence[Hashable]], list[float | None]]
SampleTransform = Callable[[Sequence[TrainingSample]], list[TrainingSample]]


class Update(Protocol):
    """The update that a system makes from the groups of a step."""

    def __call__(self, step: int, groups: Sequence[TrajectoryGroup]) -> dict[str, float]:
        """Make the step's optimizer steps; returns their metrics."""
        ...


@dataclass(frozen=True, slots=True)
class KLPenalty:
    """A penalty in the reward: `coefficient` x the k1 estimate of KL(policy, reference), summed over a rollout.

    The policy's logprobs are the samples' `old_logprobs`, which the learner computes as it does the reference's: before
    the first update the penalty is 0, however the sampler rounds.
    """

    coefficient: float

    def tokens(self, sample: TrainingSample) -> list[float]:
        """The penalty of each token of a sample with `ref_logprobs`: [T], 0.0 off the mask."""
        pairs = zip(sample.old_logprobs or (), sample.ref_logprobs or (), strict=True)
        return [self.coefficient * (logprob - ref_logprob) for logprob, ref_logprob in pairs]


class TokenAdvantages(Protocol):
    """Advantages of single tokens, independent of the rollout's reward."""

    def tokens(self, samples: Sequence[TrainingSample]) -> list[list[float]]:
        """The amount added to each token's advantage: a row of [T] for each sample, in order."""
        ...


@dataclass(frozen=True, slots=True)
class GroupUpdate:
    """One advantage for each rollout, the same on all of its tokens.

    `transforms` put into the samples what the loss needs besides the sampler's logprobs, in their order: the logprobs
    of a reference policy, or those that replace the sampler's as `old_logprobs`. `penalty` is subtracted from the
    rewards, `distillation` added to the advantages of the action tokens.
    Without `mask_observations` the tokens of tool results are trained on as if the policy had written them; this is an
    ablation. `loss` is the learner's own unless another one is given, where the learner is shared.
    """

    learner: LearnerBase[LossInputs]
    credit: Credit
    seed: int
    mini_batches: int = 1
    transforms: Sequence[SampleTransform] = ()
    penalty: KLPenalty | None = None
    mask_observations: bool = True
    distillation: TokenAdvantages | None = None
    loss: LossFn[LossInputs] | None = None

    def __call__(self, step: int, groups: Sequence[TrajectoryGroup]) -> dict[str, float]:
        """Advantages, mini-batches of whole groups, one optimizer step each."""
        rng = random.Random(f"{self.seed}/mini-batches/{step}")
        batches = split_groups(self.samples(groups), self.mini_batches, rng)
        return mean_metrics([self.learner.update(batch, self.loss) for batch in batches])

    def samples(self, groups: Sequence[TrajectoryGroup]) -> list[TrainingSample]:
        """A sample with advantages for each scored rollout that has one by the credit."""
        samples = scored_samples(groups, self.transforms, mask_observations=self.mask_observations)
        rewards = [reward for group in groups for reward in scored_rewards(group)]
        if self.penalty is not None:
            costs = (sum(self.penalty.tokens(sample)) for sample in samples)
            rewards = [reward - cost for reward, cost in zip(rewards, costs, strict=True)]
        advantages = self.credit(rewards, [sample.group for sample in samples])
        samples = [
            with_advantages(sample, [advantage] * len(sample.loss_mask))
            for sample, advantage in zip(samples, advantages, strict=True)
            if advantage is not None
        ]
        if self.distillation is None:
            return samples
        rows = zip(samples, self.distillation.tokens(samples), strict=True)
        return [with_advantages(sample, list(map(add, sample.advantages, row))) for sample, row in rows]


def scored_rewards(group: TrajectoryGroup) -> list[float]:
    """Rewards of the members that `scored_samples` makes a sample of, in the same order."""
    return [
        outcome.reward
        for trajectory, outcome in zip(group.trajectories, group.outcomes, strict=True)
        if isinstance(outcome, Scored) and trajectory.num_action_tokens
    ]


def scored_samples(
    groups: Sequence[TrajectoryGroup], transforms: Sequence[SampleTransform], *, mask_observations: bool
) -> list[TrainingSample]:
    """A sample for each scored rollout with an action, still without advantages; Invalid ones are left out."""
    samples = [
        sample
        for group in groups
        for sample in group_samples(group, [0.0 if isinstance(outcome, Scored) else None for outcome in group.outcomes])
    ]
    written = [sample.loss_mask for sample in samples]
    if not mask_observations:
        samples = [_unmask(sample) for sample in samples]
    for complete in transforms:
        samples = complete(samples)
    if not mask_observations:
        samples = [_record_own(sample, mask) for sample, mask in zip(samples, written, strict=True)]
    return samples


def with_advantages(sample: TrainingSample, advantages: Sequence[float]) -> TrainingSample:
    """The sample with these advantages on its action tokens, 0.0 elsewhere."""
    values = (value if acts else 0.0 for value, acts in zip(advantages, sample.loss_mask, strict=True))
    return replace(sample, advantages=tuple(values))


def split_groups(samples: Sequence[TrainingSample], parts: int, rng: random.Random) -> list[list[TrainingSample]]:
    """Mini-batches of whole groups, as equal in number as they can be, drawn at random; without a cut, as they came.

    There are no more of them than groups, and always one, if only an empty one: a step without samples is counted.
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
    """Each metric's mean over the updates that have it; numbers of samples are summed, of a count that runs through a
    run the last value is taken, and of the difference between sampler and learner the first, before any step."""

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
    """Where the sampler wrote nothing, use the learner's own logprobs, so that the two do not differ there."""
    rows = zip(sample.rollout_logprobs, sample.old_logprobs or (), written, strict=True)
    return replace(sample, rollout_logprobs=tuple(record if acts else mine for record, mine, acts in rows))


def group_samples(group: TrajectoryGroup, advantages: Sequence[float | None]) -> list[TrainingSample]:
    """One sample for each member with an advantage: the advantage on its action tokens, 0 elsewhere. Its ratio is
    taken to the sampler's record.

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
        record = trajectory.rollout_logprobs
        samples.append(
            TrainingSample(
                token_ids=trajectory.token_ids,
                loss_mask=trajectory.loss_mask,
                rollout_logprobs=record,
                old_logprobs=record,
                advantages=tuple(advantage if acts else 0.0 for acts in trajectory.loss_mask),
                role=trajectory.role,
                group=group.key,
                policy_version=trajectory.policy_version,
                id=trajectory.id,
            )
        )
    return samples


@dataclass(frozen=True, slots=True)
class TwoRoleUpdate:
    """A step on the groups of several roles by name. A role without samples is left out of it.

    A role's own update makes its samples with advantages, and has its loss. There are no more mini-batches than any
    role that is in it has groups, so that all of them are in each. A role's metrics are named <role>/...
    """

    learner: LearnerBase[LossInputs]
    roles: Mapping[str, GroupUpdate]
    seed: int
    mini_batches: int = 1

    def __call__(self, step: int, groups: Mapping[str, Sequence[TrajectoryGroup]]) -> dict[str, float]:
        """Advantages, mini-batches of whole groups of every role, one optimizer step each. Groups of a role that is
        not among `roles` are not trained on."""
        made = {name: role.samples(groups[name]) for name, role in self.roles.items() if groups.get(name)}
        samples = {name: own for name, own in made.items() if own}
        fewest = min((len({sample.group for sample in own}) for own in samples.values()), default=1)
        parts = min(self.mini_batches, fewest)
        batches = {
            name: split_groups(own, parts, random.Random(f"{self.seed}/mini-batches/{name}/{step}"))
            for name, own in samples.items()
        }
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


Estimate = Callable[[Sequence[float], Sequence[float]], tuple[list[float], list[float]]]
"""From rewards and values of a trajectory's action tokens to advantages and returns."""


_GAE = CriticCredit()


@dataclass(frozen=True, slots=True)
class PPOUpdate:
    """A step of PPO. `predict` fills in the samples' `values`; the policy is not updated in the first
    `critic_warmup_steps` steps. Metrics of the critic are named critic/..."""

    learner: LearnerBase[LossInputs]
    critic: LearnerBase[ValueInputs]
    predict: SampleTransform
    seed: int
    estimate: Estimate = _GAE
    mini_batches: int = 1
    critic_warmup_steps: int = 0
    transforms: Sequence[SampleTransform] = ()
    penalty: KLPenalty | None = None
    mask_observations: bool = True

    def __call__(self, step: int, groups: Sequence[TrajectoryGroup]) -> dict[str, float]:
        """Values, advantages, then the mini-batches."""
        transforms = (*self.transforms, self.predict)
        samples = scored_samples(groups, transforms, mask_observations=self.mask_observations)
        rewards = [reward for group in groups for reward in scored_rewards(group)]
        samples = self._estimate(samples, rewards)
        batches = split_groups(samples, self.mini_batches, random.Random(f"{self.seed}/mini-batches/{step}"))
        critic = mean_metrics([self.critic.update(batch) for batch in batches])
        metrics = {f"critic/{name.removeprefix('critic/')}": value for name, value in critic.items()}
        if step > self.critic_warmup_steps:
            metrics |= mean_metrics([self.learner.update(batch) for batch in batches])
        return metrics

    def _estimate(self, samples: Sequence[TrainingSample], rewards: Sequence[float]) -> list[TrainingSample]:
        """The samples with whitened advantages and with the returns, which are the critic's targets."""
        estimates = [self._credit(sample, reward) for sample, reward in zip(samples, rewards, strict=True)]
        advantages = whiten([advantages for advantages, _ in estimates])
        return [
            replace(sample, advantages=_on_actions(sample, own), returns=_on_actions(sample, returns))
            for sample, own, (_, returns) in zip(samples, advantages, estimates, strict=True)
        ]

    def _credit(self, sample: TrainingSample, reward: float) -> tuple[list[float], list[float]]:
        """Advantages and returns of a sample's action tokens."""
        costs = self.penalty.tokens(sample) if self.penalty else [0.0] * len(sample.loss_mask)
        rewards = [-cost for cost in compress(costs, sample.loss_mask)]
        rewards[-1] += reward
        values = list(compress(sample.values or (), sample.loss_mask))
        return self.estimate(rewards, values)


def _on_actions(sample: TrainingSample, values: Sequence[float]) -> tuple[float, ...]:
    """Values of the action tokens at their positions in the sequence; 0.0 elsewhere."""
    given = iter(values)
    return tuple(next(given) if acts else 0.0 for acts in sample.loss_mask)
