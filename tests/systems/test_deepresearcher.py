"""DeepResearcher's step: Search-R1's, with numbers about browsing."""

import asyncio

from evoseek.systems.deepresearcher import DeepResearcher, browsing_metrics
from evoseek.systems.search_r1 import SearchR1
from evoseek.training.rollout_metrics import metrics_by
from evoseek.types import Action, Question, Scored, StopReason, ToolCall, ToolResult, Trajectory, TrajectoryGroup


def rollout(turns, tools, **metadata):
    """One of so many completions, with calls of these tools."""
    return Trajectory(
        id="r",
        question=Question("q", "who?", ("Meri",), metadata),
        role="solver",
        segments=(),
        actions=(Action("..."),) * turns,
        tool_results=tuple(ToolResult(ToolCall(tool, {}), "found") for tool in tools),
        stop_reason=StopReason.ANSWERED,
    )


def group(*trajectories):
    return TrajectoryGroup("g", trajectories, (Scored(0.0),) * len(trajectories))


def test_the_numbers_by_hand():
    groups = [
        group(rollout(2, ["web_search"], hops=1), rollout(4, ["web_search", "browse", "browse"], hops=1)),
        group(rollout(5, ["browse"], hops=2), rollout(3, ["search"], hops=2)),
        group(rollout(1, []), rollout(3, ["web_search", "browse"])),
    ]
    assert browsing_metrics(groups) | metrics_by(groups, "hops", browsing_metrics) == {
        "browsing/share": 3 / 6,
        "browsing/turns": 18 / 6,
        "browsing/share/hops_1": 1 / 2,
        "browsing/turns/hops_1": 6 / 2,
        "browsing/share/hops_2": 1 / 2,
        "browsing/turns/hops_2": 8 / 2,
    }


def test_a_step_is_search_r1s_with_these_numbers(scripted):
    questions = [Question(f"q{n}", "who ?", ("Meri",), {"hops": 1}) for n in range(2)]
    rollouts = scripted({f"q{n}/{i}": "Meri" for n in range(2) for i in range(2)})
    steps = [
        system(questions, rollouts, lambda step, groups: {"loss": 0.5}, lambda step: None, 2)
        for system in (SearchR1, DeepResearcher)
    ]
    plain, ours = (asyncio.run(system.step(1)).metrics for system in steps)
    added = {"browsing/share": 0.0, "browsing/turns": 1.0, "browsing/share/hops_1": 0.0, "browsing/turns/hops_1": 1.0}
    assert ours == {**plain, **added}
