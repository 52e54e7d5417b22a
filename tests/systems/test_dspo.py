"""The filter and its bounded refill, with scripted rollouts."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evoseek.credit import group_advantages
from evoseek.reward.functions import RewardSettings
from evoseek.reward.shaping import ShapedReward
from evoseek.systems.dspo import DSPO, Signal, filter_metrics, group_signal
from evoseek.training.question_order import Passes, QuestionOrder


class Update:
    def __call__(self, step, groups):
        self.groups = groups
        return {}


UNIFORM = QuestionOrder()


@pytest.fixture
def step(scripted, questions):
    def run(
        right, *, per_step=2, limit=2, number=1, shape=lambda reward: reward, asked=None, by=UNIFORM, failing=(), **own
    ):
        """`right[id]` of a question's two rollouts succeed; those of `failing` are Invalid."""
        valid = [q.id for q in questions if q.id not in failing]
        texts = {f"{id}/{n}": "meri" if n < right[id] else "kalo" for id in valid for n in range(2)}
        rollouts, update = scripted(texts, number=number), Update()
        rollouts = replace(rollouts, reward=shape(rollouts.reward))
        system = DSPO(asked or questions, rollouts, update, lambda _: None, per_step, limit=limit, order=by, **own)
        return asyncio.run(system.step(number)), update

    return run


def order(questions):
    return [question.id for question in UNIFORM(questions, seed=0, step=1, size=4, passes=Passes())]


def test_groups_without_a_signal_are_replaced_by_the_next_questions(step, questions):
    first, second, third, fourth = order(questions)
    report, update = step({first: 0, second: 1, third: 1, fourth: 1})
    assert [group.key.split("/")[1] for group in update.groups] == [second, third]
    assert report.num_rollouts == 6  # two questions, then one: the fourth is not needed
    assert report.metrics["rollout/filter/kept"] == 2
    assert report.metrics["rollout/filter/drawn"] == 3
    assert report.metrics["rollout/filter/all_wrong"] == 1


def test_the_bound_ends_it_with_a_smaller_batch(step, questions):
    first, *rest = order(questions)
    report, update = step({first: 1} | dict.fromkeys(rest, 2))
    assert len(update.groups) == 1
    assert report.num_rollouts == 8
    assert report.metrics["rollout/filter/missing"] == 1


def test_trap_nothing_has_a_signal_and_nothing_hangs(step, questions):
    report, update = step(dict.fromkeys(order(questions), 0))
    assert list(update.groups) == []
    assert report.metrics["frac_reward_zero_std"] == 1.0
    assert report.num_rollouts == 8


def test_no_more_questions_are_drawn_than_there_are(step, questions):
    report, _ = step(dict.fromkeys(order(questions), 2), per_step=3, limit=4)
    assert report.num_rollouts == 8


def test_a_batch_that_is_full_at_once_costs_nothing_more(step, questions):
    report, update = step(dict.fromkeys(order(questions), 1), number=5)
    assert report.num_rollouts == 4
    assert [group.key.split("/")[1] for group in update.groups] == order(questions)[:2]


def test_trap_nothing_is_trained_on_where_too_many_of_all_attempts_failed_whatever_was_kept(step, questions):
    """Six of eight rollouts fail, each three times, none of them in the group with a signal. The questions of the step
    are as if not drawn."""
    first, *rest = order(questions)
    for share, kept in ((0.2, 0), (0.9, 1)):
        passes = Passes()
        report, update = step({first: 1}, failing=rest, max_invalid=share, passes=passes)
        assert (len(report.failures), report.num_rollouts) == (18, 20)
        assert report.metrics["rollout/filter/kept"] == 1
        assert len(update.groups) == kept
        assert report.has_too_many_failures(share) is not bool(kept)
        assert any(passes.state().values()) is bool(kept)


def test_lengths_are_no_signal(step, questions):
    """Every rollout is right, one of two overlong: their rewards differ, but only by how long they are."""

    def shape(reward):
        shaped = ShapedReward(reward, RewardSettings(overlong_max=1))

        async def every_other(trajectory):
            return await (shaped if trajectory.id.endswith("/1") else reward)(trajectory)

        return every_other

    report, update = step(dict.fromkeys(order(questions), 2), shape=shape)
    assert report.metrics["reward"] == 0.5
    assert report.metrics["rollout/filter/all_right"] == 4
    assert list(update.groups) == []


def test_where_steps_are_balanced_no_more_are_drawn_than_the_shares_leave(step, questions):
    """Three of one kind and one of another: in equal shares a step draws two and one, however high its limit is."""
    kinds = [replace(question, metadata={"kind": "a" if n else "b"}) for n, question in enumerate(questions)]
    report, _ = step(dict.fromkeys(order(questions), 2), limit=2, asked=kinds, by=QuestionOrder("kind"))
    assert report.num_rollouts == 6


@given(st.lists(st.integers(0, 2), min_size=4, max_size=4), st.integers(1, 3), st.integers(1, 4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
def test_the_bounds_hold_whatever_is_drawn(step, questions, right, wanted, limit):
    report, update = step(dict(zip(order(questions), right, strict=True)), per_step=wanted, limit=limit)
    drawn, kept, missing = (report.metrics[f"rollout/filter/{name}"] for name in ("drawn", "kept", "missing"))
    assert drawn <= min(limit * wanted, 4)
    assert len(update.groups) == kept == wanted - missing
    assert missing == 0 or drawn == min(limit * wanted, 4)


values_of_groups = st.lists(st.sampled_from([None, 0.0, 1.0]), max_size=6)


@pytest.mark.parametrize(
    ("values", "signal"),
    [
        ([1, 0, 1], Signal.MIXED),
        ([1, 1, 1], Signal.ALL_RIGHT),
        ([0, 0, 0], Signal.ALL_WRONG),
        ([1, None, None], Signal.TOO_FEW_VALID),
        ([], Signal.TOO_FEW_VALID),
        ([1, None, 0], Signal.MIXED),
        ([1, None, 1], Signal.ALL_RIGHT),
        ([0, None, 0], Signal.ALL_WRONG),
        ([0.5, 0.5], Signal.ALL_WRONG),  # equal F1 scores: no success, and nothing to compare
        ([0.5, 0.6], Signal.MIXED),
        ([1.5, 1.5], Signal.ALL_RIGHT),
        ([-1.0, 0.0], Signal.MIXED),
    ],
)
def test_what_a_groups_rewards_say(values: list, signal: Signal) -> None:
    assert group_signal(values) is signal


@given(values_of_groups)
def test_a_group_is_mixed_exactly_if_it_has_successes_and_failures_and_so_advantages(values: list) -> None:
    successes, valid = values.count(1.0), len(values) - values.count(None)
    is_mixed = group_signal(values) is Signal.MIXED
    assert is_mixed == (0 < successes < valid)
    assert is_mixed == any(group_advantages(values, ["q"] * len(values)))


def test_what_the_filter_counts():
    mixed, right, failed = Signal.MIXED, Signal.ALL_RIGHT, Signal.TOO_FEW_VALID
    assert filter_metrics([right, mixed, failed, mixed], 2) == {
        "rollout/filter/drawn": 4.0,
        "rollout/filter/kept": 2.0,
        "rollout/filter/missing": 0.0,
        "rollout/filter/all_right": 1.0,
        "rollout/filter/all_wrong": 0.0,
        "rollout/filter/too_few_valid": 1.0,
        "rollout/filter/frac_reward_zero_std": pytest.approx(1 / 3),
    }
    assert "rollout/filter/frac_reward_zero_std" not in filter_metrics([failed], 1)
