import math
import random
from dataclasses import replace
from operator import mul

import pytest

from evoseek.assembly.settings import RunSettings
from evoseek.training.alarms import biased_by_failures
from evoseek.training.rollout_metrics import (
    StepReport,
    failure_bias,
    metrics_by,
    rollout_metrics,
    signal_metrics,
    staleness_metrics,
    too_many_failures,
    tool_latency_s,
)
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
    results = tuple(
        ToolResult(ToolCall("search", {"query": query}), "", passages, queries=(query.strip(),))
        for query, passages in calls
    )
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


class TestFailedSearchesMoveRewards:
    """Rollouts of one to four searches, right in .1, .4, .9 and .97 of the cases: .5925 in all. Of N searches, each of
    which fails with probability q after all its attempts, (1 - q)^N are left."""

    RIGHT = 0.1, 0.4, 0.9, 0.97

    def groups(self, failing, attempts=1, *, size=8, count=600, seed=0):
        """Each member is rolled out up to three times, as in training."""
        rng = random.Random(seed)

        def attempt():
            wanted = rng.randint(1, 4)
            made = next((n for n in range(wanted) if rng.random() < failing**attempts), wanted)
            if made < wanted:
                reason = StopReason.TOOL_FAILED
                return trajectory(reason, 1, (0.0,) * made), Invalid(reason)
            return trajectory(StopReason.ANSWERED, 1, (0.0,) * made), Scored(float(rng.random() < self.RIGHT[made - 1]))

        for number in range(count):
            members, replaced = [], []
            for _ in range(size):
                tries = [attempt()]
                while isinstance(tries[-1][1], Invalid) and len(tries) < 3:
                    tries.append(attempt())
                replaced += tries[:-1]
                members.append(tries[-1])
            yield TrajectoryGroup(str(number), *map(tuple, zip(*members, strict=True)), tuple(replaced))

    def test_with_one_attempt_the_mean_reward_falls_and_the_estimate_says_how_far(self):
        found = [rollout_metrics(list(self.groups(failing))) for failing in (0.0, 0.05, 0.2, 0.4)]
        assert [metrics["reward"] for metrics in found] == pytest.approx([0.592, 0.572, 0.506, 0.406], abs=0.02)
        assert "rollout/failure_bias" not in found[0]
        for metrics in found[1:]:
            assert metrics["reward"] - metrics["rollout/failure_bias"] == pytest.approx(0.592, abs=0.025)
        step = StepReport.of(self.groups(0.2), {}, {})
        assert len(step.failures) / step.num_rollouts > RunSettings().max_invalid
        assert found[2]["rollout/invalid_frac"] < 0.1  # which does not say so: nearly all were rolled out again

    def test_three_attempts_are_enough(self):
        assert rollout_metrics(list(self.groups(0.2, 3)))["reward"] == pytest.approx(0.592, abs=0.02)
        step = StepReport.of(self.groups(0.4, 3), {}, {})
        assert len(step.failures) / step.num_rollouts < RunSettings().max_invalid

    def test_at_the_bound_the_mean_reward_is_off_by_some_five_hundredths(self):
        """By hand, where N and the reward go together as closely as they can: E[R K] / E[K] - E[R]."""
        left = 0.914  # of each search: .2 of the attempts fail
        shares = [left**n for n in range(1, 5)]
        assert 1 - sum(shares) / 4 == pytest.approx(RunSettings().max_invalid, abs=0.005)
        biased = sum(map(mul, shares, self.RIGHT)) / sum(shares)
        assert sum(self.RIGHT) / 4 - biased == pytest.approx(0.036, abs=0.002)

    def test_a_warning_says_when_it_is_more_than_chance(self):
        def rows(failing, attempts=1):
            for seed in range(5):
                yield rollout_metrics(list(self.groups(failing, attempts, count=20, seed=seed)))

        said = biased_by_failures(list(rows(0.2)))
        assert "% of the attempts at a rollout failed, which moved the mean reward by about -0.0" in said
        of_solver = [{f"solver/{name}": value for name, value in row.items()} for row in rows(0.2)]
        assert biased_by_failures(of_solver) == said
        assert biased_by_failures(list(rows(0.0))) is biased_by_failures(list(rows(0.2, 3))) is None


@pytest.mark.parametrize(("failed", "too_many"), [(0, False), (1, False), (3, False), (4, True)])
def test_surely_more_than_a_fifth_of_the_attempts_failed(failed, too_many):
    outcomes = (Invalid(StopReason.TOOL_FAILED),) * failed + (Scored(0.0),) * (8 - failed)
    group = TrajectoryGroup("a", (trajectory(StopReason.ANSWERED, 1),) * 8, outcomes)
    assert too_many_failures([group], 0.2) is too_many
    assert StepReport.of([group], {}, {}).has_too_many_failures(0.2) is too_many


@pytest.mark.parametrize(("replaced", "too_many"), [(3, False), (6, True)])
def test_attempts_that_were_replaced_count_as_failed(replaced, too_many):
    """3 of 11 are not surely more than a fifth; 6 of 14 are."""
    made = (trajectory(StopReason.ANSWERED, 1),) * 8
    failures = tuple((one, Invalid(StopReason.TOOL_FAILED)) for one in made[:replaced])
    assert too_many_failures([TrajectoryGroup("a", made, (Scored(1.0),) * 8, failures)], 0.2) is too_many


def test_the_bias_by_failures_weighs_groups_of_different_sizes_alike():
    """By hand: one of two calls fails, so a rollout with a call stands for two. A group of four: one call and right
    1, none and right 0, two that failed before their first call; a group of one: no call, right 1."""
    failure = trajectory(StopReason.TOOL_FAILED, 1), Invalid(StopReason.TOOL_FAILED)
    called = trajectory(StopReason.ANSWERED, 1, (0.1,)), Scored(1.0)
    guessed = trajectory(StopReason.ANSWERED, 1), Scored(0.0)
    lone = trajectory(StopReason.ANSWERED, 1), Scored(1.0)
    groups = [
        TrajectoryGroup("a", *map(tuple, zip(called, guessed, failure, guessed, strict=True))),
        TrajectoryGroup("b", *map(tuple, zip(lone, strict=True))),
    ]
    # weights: 2 / 4 for the called one, 1 / 4 for each guess, 1 / 1 for the lone one
    estimate = (2 / 4 + 1) / (2 / 4 + 2 * 1 / 4 + 1)
    assert failure_bias(groups) == pytest.approx(2 / 4 - estimate)


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
    assert metrics_by(asked, "hops", signal_metrics) == {
        "reward/hops_1": 0.5,
        "answer_reward/hops_1": 0.5,
        "frac_reward_zero_std/hops_1": 0.0,
        "tools/call_frequency/hops_1": pytest.approx(2 / 3),
        "reward/hops_2": 0.0,
        "answer_reward/hops_2": 0.0,
        "frac_reward_zero_std/hops_2": 1.0,
        "tools/call_frequency/hops_2": 1.0,
    }
    assert metrics_by(asked, "kind", signal_metrics)["reward/kind_a_b"] == 0.25
    marked = [asked[0], replace(asked[1], trajectories=tuple(map(unanswerable, asked[1].trajectories)))]
    shares = metrics_by(marked, "answerable", signal_metrics)
    assert (shares["reward/answerable_True"], shares["reward/answerable_False"]) == (0.5, 0.0)
    assert metrics_by(asked, "depth", signal_metrics) == metrics_by(asked, "", signal_metrics) == {}


def test_what_is_added_to_the_reward_of_an_answer_is_not_in_answer_reward():
    shaped = Scored(0.75, {"unshaped": 1.0, "unanswered": -0.25})
    same = TrajectoryGroup("a", GROUPS[0].trajectories[:2], (shaped, Scored(1.0)))
    told = rollout_metrics([same])
    assert (told["frac_reward_zero_std"], told["frac_answer_reward_zero_std"]) == (0.0, 1.0)
    group = TrajectoryGroup("a", GROUPS[0].trajectories[:2], (shaped, Scored(0.0)))
    assert rollout_metrics([group])["frac_answer_reward_zero_std"] == 0.0
    metrics = rollout_metrics([group])
    assert (metrics["reward"], metrics["answer_reward"]) == (0.375, 0.5)


def unanswerable(trajectory):
    return replace(trajectory, question=Question("q2", "?", (), {"answerable": False}))


def test_staleness_is_weighed_by_tokens():
    """In step 5 weights 4 are trained: four tokens of weights 2, six of weights 4, and two turns without a version of
    their own."""
    mixed = replace(trajectory(StopReason.ANSWERED, 4), policy_version=2)
    mixed = replace(mixed, segments=(*mixed.segments, Segment("action", (5,) * 6, (0.0,) * 6, 4)))
    fresh = replace(trajectory(StopReason.ANSWERED, 2), policy_version=4)
    groups = [TrajectoryGroup("a", (mixed, fresh), (Scored(1.0), Scored(0.0)))]
    assert staleness_metrics(groups, 5) == {"rollout/staleness/mean": 4 * 2 / 12, "rollout/staleness/max": 2.0}
    assert staleness_metrics([], 5) == {}


def test_calls_are_counted_by_tool_where_several_are_called():
    def called(*names):
        results = tuple(ToolResult(ToolCall(name, {}), "") for name in names)
        return replace(trajectory(StopReason.ANSWERED, 4), tool_results=results)

    several = TrajectoryGroup("a", (called("search", "sum", "sum"), called("sum")), (Scored(1.0), Scored(0.0)))
    metrics = rollout_metrics([several])
    named = {name: value for name, value in metrics.items() if name.startswith("tools/call_frequency")}
    assert named == {"tools/call_frequency": 2.0, "tools/call_frequency/search": 0.5, "tools/call_frequency/sum": 1.5}
    one = rollout_metrics([TrajectoryGroup("a", (called("search"),), (Scored(1.0),))])
    assert [name for name in one if name.startswith("tools/call_frequency")] == ["tools/call_frequency"]
