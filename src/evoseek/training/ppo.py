"""PPO (arXiv 1707.06347) for rollouts of many turns: a critic, the value function, predicts the expected return at
every action token.

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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import compress

from evoseek.credit.advantages import CriticCredit, whiten
from evoseek.learner.base import LearnerBase
from evoseek.loss.base import LossInputs, ValueInputs
from evoseek.training.update import (
    KLPenalty,
    SampleTransform,
    mean_metrics,
    scored_rewards,
    scored_samples,
    split_groups,
)
from evoseek.types import TrainingSample, TrajectoryGroup

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
