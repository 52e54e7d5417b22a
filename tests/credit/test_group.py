import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.credit.group import group_advantages

CASES = json.loads((Path(__file__).parents[1] / "fixtures" / "group_advantages.json").read_text())["cases"]

members = st.lists(
    st.tuples(st.none() | st.floats(-2, 2, allow_subnormal=False), st.integers(0, 3)), min_size=1, max_size=24
)


@pytest.mark.parametrize("case", CASES)
def test_standardised_advantages_equal_the_reference(case: dict) -> None:
    advantages = group_advantages(case["rewards"], case["groups"], singleton="raw")
    assert advantages == pytest.approx(case["advantages"], abs=1e-6)


def test_trap_an_invalid_member_leaves_the_loss_and_the_baseline() -> None:
    """A failed rollout counted as reward 0 would pay whoever caused it. Mean of (1, 0, 0) = 1/3."""
    advantages = group_advantages([1, None, 0, 0], ["q"] * 4, scale="none")
    assert advantages[1] is None
    assert [advantages[0], *advantages[2:]] == pytest.approx([2 / 3, -1 / 3, -1 / 3])


def test_trap_groups_are_bound_by_key_not_by_position() -> None:
    assert group_advantages([1, 3, 0, 1], ["a", "b", "a", "b"], scale="none") == [0.5, 1.0, -0.5, -1.0]


def test_trap_equal_rewards_give_exactly_zero() -> None:
    """0.1 + 0.1 + 0.1 is not 0.3 in floating point: divided by eps the rounding would look like a signal."""
    assert group_advantages([0.1] * 3, ["q"] * 3) == [0.0] * 3


@pytest.mark.parametrize(("singleton", "expected"), [("raw", 0.7), ("zero", 0.0), ("drop", None)])
def test_a_group_of_one_is_a_choice(singleton: str, expected: float | None) -> None:
    for rewards in ([0.7], [0.7, None]):  # a second member that is Invalid leaves a group of one
        advantages = group_advantages(rewards, ["h"] * len(rewards), singleton=singleton)
        assert advantages[0] == (None if expected is None else pytest.approx(expected, abs=1e-6))


def test_nothing_and_only_invalid_members() -> None:
    assert group_advantages([], []) == []
    assert group_advantages([None, None], ["q", "q"]) == [None, None]


@given(members, st.sampled_from(["std", "none"]))
def test_advantages_of_each_group_sum_to_zero(pairs: list, scale: str) -> None:
    rewards, groups = zip(*pairs, strict=True)
    advantages = group_advantages(rewards, groups, scale=scale)
    for key in set(groups):
        total = sum(a for a, group in zip(advantages, groups, strict=True) if group == key and a is not None)
        assert total == pytest.approx(0.0, abs=1e-6)


def test_scale_none_by_hand_and_std_of_it() -> None:
    """Mean 2, deviations -2, 0, 2, std 2 with n - 1."""
    assert group_advantages([0.0, 2.0, 4.0], "qqq", scale="none") == [-2.0, 0.0, 2.0]
    assert group_advantages([0.0, 2.0, 4.0], "qqq", eps=0.0) == [-1.0, 0.0, 1.0]
    assert group_advantages([0.0, 2.0, 4.0], "qqq", eps=2.0) == [-0.5, 0.0, 0.5]


def test_without_scale_a_raw_group_of_one_keeps_its_reward_bit_for_bit() -> None:
    assert group_advantages([0.7], ["h"], scale="none", singleton="raw") == [0.7]


def test_trap_rewards_that_almost_agree_do_not_explode() -> None:
    """eps bounds what a difference of rounding size can become."""
    assert max(map(abs, group_advantages([0.5, 0.5 + 1e-12], "qq"))) < 1e-5


@given(members, st.floats(0.1, 10.0), st.floats(-5.0, 5.0))
def test_scale_std_forgets_the_rewards_unit_and_both_forget_their_zero(pairs: list, unit: float, zero: float) -> None:
    rewards, groups = zip(*pairs, strict=True)
    moved = [None if reward is None else round(reward, 3) * unit + zero for reward in rewards]
    plain = [None if reward is None else round(reward, 3) for reward in rewards]
    for scale, factor in (("std", 1.0), ("none", unit)):
        advantages = group_advantages(plain, groups, scale=scale, eps=0.0)
        expected = [None if a is None else pytest.approx(a * factor, rel=1e-6, abs=1e-9) for a in advantages]
        assert group_advantages(moved, groups, scale=scale, eps=0.0) == expected


@given(members, st.sampled_from(["std", "none"]), st.integers(0, 1000))
def test_advantages_are_permutation_equivariant(pairs: list, scale: str, seed: int) -> None:
    shuffled = list(range(len(pairs)))
    random.Random(seed).shuffle(shuffled)
    rewards, groups = zip(*pairs, strict=True)
    advantages = group_advantages(rewards, groups, scale=scale)
    permuted = group_advantages([rewards[i] for i in shuffled], [groups[i] for i in shuffled], scale=scale)
    assert permuted == [advantages[i] for i in shuffled]


@given(members, st.sampled_from(["std", "none"]))
def test_invalid_members_change_nothing_for_the_others(pairs: list, scale: str) -> None:
    valid = [pair for pair in pairs if pair[0] is not None]
    rewards, groups = zip(*pairs, strict=True)
    advantages = group_advantages(rewards, groups, scale=scale)
    assert [a is None for a in advantages] == [reward is None for reward in rewards]
    if valid:
        assert [a for a in advantages if a is not None] == group_advantages(*zip(*valid, strict=True), scale=scale)
