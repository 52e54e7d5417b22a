"""One policy that plays two roles, trained on both in the same optimizer steps (Search Self-play).

    for each of `mini_batches` parts of the step's groups:
        gradient = the gradient of each role's loss over its part, added up
        one optimizer step

Each role has its own credit and loss, divided by its own counts. In Search Self-play the solver learns by GRPO, a mean
over tokens, and the proposer by REINFORCE, a sum over a rollout's tokens: the gradients differ in size by about the
length of a rollout, so that the proposer's outweighs the solver's, and clipping the norm of the sum scales both.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from evoseek.learner.base import LearnerBase
from evoseek.loss.base import LossFn, LossInputs
from evoseek.training.update import mean_metrics, split_groups
from evoseek.types import TrainingSample, TrajectoryGroup


@dataclass(frozen=True, slots=True)
class RoleUpdate:
    """How a role's groups become samples with advantages (the `samples` of a GroupUpdate), and the loss of these."""

    samples: Callable[[Sequence[TrajectoryGroup]], list[TrainingSample]]
    loss: LossFn[LossInputs]


@dataclass(frozen=True, slots=True)
class TwoRoleUpdate:
    """A step on the groups of several roles by name. A role without samples is left out of it.

    There are no more mini-batches than any role that is in it has groups, so that all of them are in each. A role's
    metrics are named <role>/...
    """

    learner: LearnerBase[LossInputs]
    roles: Mapping[str, RoleUpdate]
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
            self.learner.update_together([(own[part], self.roles[name].loss) for name, own in batches.items()])
            for part in range(parts)
        ]
        metrics = mean_metrics([whole for whole, _ in updates])
        for number, name in enumerate(batches):
            own = mean_metrics([terms[number] for _, terms in updates])
            metrics |= {f"{name}/{key}": value for key, value in own.items()}
        return metrics
