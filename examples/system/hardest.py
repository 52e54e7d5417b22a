"""A system of one's own: Search-R1 that trains on the hardest of the questions it asked.

for step = 1 .. steps:
    draw a batch of questions; G rollouts of each
    keep the share of the groups whose mean reward is lowest, but none in which every rollout failed
    one update on these
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from pydantic import Field

from evoseek.settings import Section
from evoseek.systems.search_r1 import Rollouts, SearchR1
from evoseek.types import Scored, TrajectoryGroup


class HardestSettings(Section):
    """What is special in this system."""

    share: float = Field(default=0.5, gt=0, le=1, description="Share of a step's groups that is trained on.")


@dataclass(frozen=True, slots=True)
class Hardest(SearchR1):
    """One training step: Search-R1's, on some of its groups."""

    share: float = 0.5

    class Settings(SearchR1.Settings):
        """Settings of Search-R1, and a table [hardest]."""

        hardest: HardestSettings = HardestSettings()

    @classmethod
    def build(cls, settings, context):
        """From settings."""
        return cls.plan(settings, context, context.engine, share=settings.hardest.share)

    async def collect(self, step: int) -> Rollouts:
        """The step's rollouts, of which the hardest are trained on."""
        rollouts = await SearchR1.collect(self, step)
        kept = hardest(rollouts.groups, self.share)
        return Rollouts(rollouts.groups, kept, {"hardest/kept": float(len(kept))})


def hardest(groups: Sequence[TrajectoryGroup], share: float) -> list[TrajectoryGroup]:
    """The share of the groups with the lowest mean reward, in their order; groups without a valid rollout are left."""
    scores: dict[int, float] = {}
    for number, group in enumerate(groups):
        if rewards := [outcome.reward for outcome in group.outcomes if isinstance(outcome, Scored)]:
            scores[number] = fmean(rewards)
    kept = sorted(scores, key=scores.__getitem__)[: max(1, round(share * len(groups)))]
    return [groups[number] for number in sorted(kept)]
