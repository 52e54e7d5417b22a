"""DeepResearcher (arXiv 2504.03160): a policy learns to search the web and to read its pages.

    for step = 1 .. steps:
        draw a batch of questions; G rollouts of each, with the tools web_search and browse, up to so many calls
        reward = -1 if the format is broken, else F1 over sets of words (`reward.web_format`)
        one update: GRPO, on the tokens that the policy wrote; what the web gave is masked

That is a step of Search-R1 with other tools and another reward. What the web does to it is dealt with elsewhere: a page
that nobody can read is told to the policy, and whatever fails for other reasons ends the rollout as Invalid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from evoseek.systems.search_r1 import Rollouts, SearchR1
from evoseek.types import Trajectory, TrajectoryGroup


@dataclass(frozen=True, slots=True)
class DeepResearcher(SearchR1):
    """One training step of DeepResearcher: Search-R1's, with numbers about browsing."""

    async def collect(self, step: int) -> Rollouts:
        """The step's rollouts: all of them are trained on."""
        rollouts = await SearchR1.collect(self, step)
        return replace(rollouts, metrics={**rollouts.metrics, **browsing_metrics(rollouts.groups)})


def browsing_metrics(groups: Sequence[TrajectoryGroup]) -> dict[str, float]:
    """How rollouts use the web; `/hops_<n>` of questions that say their number of hops.

    browsing/share            share of rollouts that asked for a page, whatever came of it
    browsing/turns            completions a rollout
    """
    every = [trajectory for group in groups for trajectory in group.trajectories]
    by_hops: dict[int, list[Trajectory]] = {}
    for trajectory in every:
        hops = trajectory.question.metadata.get("hops")
        if isinstance(hops, int):
            by_hops.setdefault(hops, []).append(trajectory)
    metrics = dict(_of(every))
    for hops, trajectories in sorted(by_hops.items()):
        metrics |= {f"{name}/hops_{hops}": value for name, value in _of(trajectories).items()}
    return metrics


def _of(trajectories: Sequence[Trajectory]) -> Mapping[str, float]:
    return {
        "browsing/share": fmean(browsed(trajectory) for trajectory in trajectories),
        "browsing/turns": fmean(len(trajectory.actions) for trajectory in trajectories),
    }


def browsed(trajectory: Trajectory) -> bool:
    """Whether a rollout asked for a page, whatever came of it."""
    return any(result.call.name == "browse" for result in trajectory.tool_results)
