import math
from dataclasses import replace

import pytest

from evoseek.training.rollout_metrics import metrics_by, rollout_metrics, staleness_metrics, tool_latency_s
from evoseek.types import (
    Action,
    Invalid,
    Passage,
    Question,
    Scored,
    Segment,
    StopReason,
    ToolCall,
    ToolResult,
    Trajectory,
    TrajectoryGroup,
)

QUESTION = Question("q", "?", ("a",))


def test_the_share_of_searches_that_found_nothing():
    """Two of three searches; a call without a query is none."""
    found = (Passage("p", "d", "kalo", "text"),)
    calls = [("kalo", found), ("meri", ()), (" ", ()), ("tolu", ())]
    results = tuple(ToolResult(ToolCall("search", {"query": query}), "", passages) for query, passages in calls)
    made = replace(trajectory(StopReason.ANSWERED, 4), tool_results=results)
    metrics = rollout_metrics([TrajectoryGroup("a", (made,), (Scored(1.0),))])
    assert metrics["tools/empty_frac"] == pytest.approx(2 / 3)
    assert "tools/empty_frac" not in rollout_metrics(GROUPS)


def trajectory(reason, tokens, latencies=()):
    segments = (Segment("prompt", (1, 2, 3)), Segment("action", (4,) * tokens, (0.0,) * tokens))
    results = tuple(ToolResult(ToolCall("search", {}), "", latency_s=latency) for latency in latencies)
    return Trajectory("t", QUESTION, "solver", segments, (), results, reason)


GROUPS = [
    TrajectoryGroup(
        "a",
        (
            trajectory(StopReason.ANSWERED, 4, (0.1, 0.3)),
            trajectory(StopReason.ANSWERED, 6),
            trajectory(StopReason.TOOL_FAILED, 2),
        ),
        (Scored(1.0), Scored(0.0), Invalid(StopReason.TOOL_FAILED)),
        ((trajectory(StopReason.DEADLINE, 100), Invalid(StopReason.DEADLINE)),) * 2,
    ),
    TrajectoryGroup("b", (trajectory(StopReason.MAX_TURNS, 8, (0.2,)),) * 2, (Scored(0.0), Scored(0.0))),
]


def test_numbers_by_hand():
    metrics = rollout_metrics(GROUPS)
    assert metrics["reward"] == 0.25
    assert metrics["reward_std"] == pytest.approx(math.sqrt(0.5) / 2)
    assert metrics["frac_reward_zero_std"] == 0.5
    assert metrics["completions/mean_length"] == pytest.approx(28 / 5)
    assert metrics["tools/call_frequency"] == pytest.approx(4 / 5)
    assert metrics["rollout/invalid_frac"] == pytest.approx(1 / 5)
    assert metrics["rollout/stop/answered"] == pytest.approx(2 / 5)
    assert metrics["rollout/stop/max_turns"] == pytest.approx(2 / 5)
    assert metrics["rollout/stop/tool_failed"] == pytest.approx(1 / 5)
    assert sum(value for name, value in metrics.items() if name.startswith("rollout/stop/")) == pytest.approx(1.0)
    assert metrics["rollout/refilled"] == metrics["rollout/refilled/deadline"] == pytest.approx(2 / 5)
    assert metrics["rollout/refilled/tool_failed"] == 0.0
    assert tool_latency_s(GROUPS) == pytest.approx(0.8 / 4)


def test_an_answer_that_could_not_be_scored_counts_as_a_failed_reward():
    group = TrajectoryGroup("a", (trajectory(StopReason.ANSWERED, 4),), (Invalid(StopReason.REWARD_FAILED),))
    metrics = rollout_metrics([group])
    assert (metrics["rollout/stop/reward_failed"], metrics["rollout/stop/answered"]) == (1.0, 0.0)


def test_numbers_that_cannot_be_had_are_left_out():
    group = TrajectoryGroup("a", (trajectory(StopReason.DEADLINE, 0),), (Invalid(StopReason.DEADLINE),))
    metrics = rollout_metrics([group])
    assert "reward" not in metrics
    assert "reward_std" not in metrics
    assert metrics["rollout/invalid_frac"] == 1.0
    assert tool_latency_s([group]) == 0.0


def test_turns_after_which_a_rollout_went_on_are_counted_and_one_that_ended_it_is_its_stop_reason():
    broken = Action("hm", problem="neither")
    went_on = replace(trajectory(StopReason.ANSWERED, 4), actions=(broken, broken, Action("a", answer="a")))
    ended = replace(trajectory(StopReason.MALFORMED, 4), actions=(broken,))
    assert rollout_metrics([TrajectoryGroup("a", (went_on, ended), (Scored(1.0), Scored(0.0)))])[
        "completions/malformed"
    ] == pytest.approx(2 / 2)
    assert "completions/malformed" not in rollout_metrics([TrajectoryGroup("a", (ended,), (Scored(0.0),))])


def test_metrics_of_each_number_of_hops():
    one, two = (Question(f"q{n}", "?", ("a",), {"hops": n, "kind": "a b"}) for n in (1, 2))
    asked = [
        replace(group, trajectories=tuple(replace(t, question=question) for t in group.trajectories))
        for group, question in zip(GROUPS, (one, two), strict=True)
    ]
    assert metrics_by(asked, "hops") == {
        "reward/hops_1": 0.5,
        "frac_reward_zero_std/hops_1": 0.0,
        "tools/call_frequency/hops_1": pytest.approx(2 / 3),
        "reward/hops_2": 0.0,
        "frac_reward_zero_std/hops_2": 1.0,
        "tools/call_frequency/hops_2": 1.0,
    }
    assert metrics_by(asked, "kind")["reward/kind_a_b"] == 0.25
    assert metrics_by(asked, "depth") == metrics_by(asked, "") == {}


def test_staleness_is_weighed_by_tokens():
    """In step 5 weights 4 are trained: four tokens of weights 2, six of weights 4, and two turns without a version of
    their own."""
    mixed = replace(trajectory(StopReason.ANSWERED, 4), policy_version=2)
    mixed = replace(mixed, segments=(*mixed.segments, Segment("action", (5,) * 6, (0.0,) * 6, 4)))
    fresh = replace(trajectory(StopReason.ANSWERED, 2), policy_version=4)
    groups = [TrajectoryGroup("a", (mixed, fresh), (Scored(1.0), Scored(0.0)))]
    assert staleness_metrics(groups, 5) == {"rollout/staleness/mean": 4 * 2 / 12, "rollout/staleness/max": 2.0}
    assert staleness_metrics([], 5) == {}
