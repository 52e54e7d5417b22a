"""DeepResearcher (arXiv 2504.03160): a policy learns to search the web and to read its pages.

    for step = 1 .. steps:
        draw a batch of questions; G rollouts of each, with the tools web_search and browse, up to a limit of calls
        reward = -1 if the format is broken, else F1 over sets of words (`reward.web_format`) one update: GRPO, on the
        tokens that the policy wrote; web content is masked

This is a step of Search-R1 with other tools and another reward. Failures of the web are handled elsewhere: if nobody
can read a page, the policy sees a note; any other failure ends the rollout as Invalid.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

from evoseek.assembly.settings import RunSettings
from evoseek.chat.settings import ReaderSettings
from evoseek.config.sections import Needs, part, parts
from evoseek.reward.functions import RewardPart
from evoseek.rollout.settings import QuestionRolloutSettings, ToolPart
from evoseek.search.settings import SearchPart
from evoseek.systems.search_r1 import Rollouts, SearchR1
from evoseek.training.rollout_metrics import metrics_by
from evoseek.types import Trajectory, TrajectoryGroup
from evoseek.web.settings import BrowseSettings, WebSettings

if TYPE_CHECKING:
    from evoseek.training.plan import TrainingContext, TrainingPlan


@dataclass(frozen=True, slots=True)
class DeepResearcher(SearchR1):
    """DeepResearcher (arXiv 2504.03160): a policy learns to search the web and to read its pages."""

    class Settings(SearchR1.Settings):
        """Settings of DeepResearcher."""

        searches_engine = False
        has_engine = False
        run: RunSettings = RunSettings(system="deepresearcher")
        search: SearchPart = part("auto", top_k=10)
        tools: tuple[ToolPart, ...] = parts("web_search", "browse")
        reward: RewardPart = part("format_f1")
        rollout: QuestionRolloutSettings = QuestionRolloutSettings(
            group_size=16,
            max_tool_calls=10,
            max_malformed=0,  # such a turn breaks the format, whose reward is -1
            max_turns=12,  # ten with calls, the one that asks for another, and the answer
            final_answer=True,
            wait_s=600.0,
        )
        web: WebSettings = WebSettings()
        browse: BrowseSettings = BrowseSettings()
        reader: ReaderSettings = ReaderSettings()

        @classmethod
        def effects(cls) -> tuple[Needs, ...]:
            why = "deepresearcher searches the web, not an index: [web] says how."
            return *super().effects(), Needs("search.name search.index evaluation.index", "", (), why)

        def problems(self) -> Iterator[str]:
            """Yield a problem if rollouts are recorded or replayed, but not in a fixed order."""
            yield from super().problems()
            if self.rollout.max_staleness and self.web.record:
                yield (
                    f"rollout.max_staleness is {self.rollout.max_staleness}, so timing decides which weights write a "
                    "turn, but web.record is for runs that can be repeated. Set rollout.max_staleness to 0, or leave "
                    "web.record out."
                )

    @classmethod
    def build(cls, settings: Settings, context: TrainingContext) -> TrainingPlan:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Build the plan; held-out questions are also answered on the web."""
        return cls.plan(settings, context, None)

    async def collect(self, step: int) -> Rollouts:
        rollouts = await SearchR1.collect(self, step)
        groups = rollouts.groups
        browsing = browsing_metrics(groups) | metrics_by(groups, "hops", browsing_metrics)
        return replace(rollouts, metrics={**rollouts.metrics, **browsing})


def browsing_metrics(groups: Sequence[TrajectoryGroup]) -> dict[str, float]:
    """Return how rollouts use the web:

    browsing/share            share of rollouts that requested a page, with any result
    browsing/turns            completions a rollout
    """
    rollouts = [trajectory for group in groups for trajectory in group.trajectories]
    return {
        "browsing/share": fmean(map(browsed, rollouts)),
        "browsing/turns": fmean(len(trajectory.actions) for trajectory in rollouts),
    }


def browsed(trajectory: Trajectory) -> bool:
    """Return whether a rollout requested a page, with any result."""
    return any(result.call.name == "browse" for result in trajectory.tool_results)
