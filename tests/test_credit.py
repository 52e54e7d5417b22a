import json
import math
import random
from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.credit import (
    gae,
    group_advantages,
    leave_one_out_advantages,
    raw_advantages,
    whiten,
    whitened_advantages,
)

CASES = json.loads((Path(__file__).parents[0] / "fixtures" / "group_advantages.json").read_text())["cases"]

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


def test_leave_one_out_by_hand() -> None:
    """1 - (0 + 0.5) / 2, 0 - (1 + 0.5) / 2, 0.5 - (1 + 0) / 2; the group of one has nothing to compare with."""
    advantages = leave_one_out_advantages([1.0, 0.0, 0.7, 0.5], ["a", "a", "b", "a"])
    assert advantages == pytest.approx([0.75, -0.75, 0.0, 0.0])


def test_trap_an_invalid_member_leaves_every_baseline() -> None:
    """The others are (1, 0, 0): 1 - 0 and 0 - 1/2; counted as a 0 it would give 1 and -1/3."""
    advantages = leave_one_out_advantages([1, None, 0, 0], ["q"] * 4)
    assert advantages[1] is None
    assert [advantages[0], *advantages[2:]] == pytest.approx([1.0, -0.5, -0.5])
    assert leave_one_out_advantages([0.7, None], ["q", "q"]) == [0.0, None]


def test_trap_equal_rewards_give_exactly_zero_also_without_the_own_one() -> None:
    assert leave_one_out_advantages([0.1] * 3, ["q"] * 3) == [0.0] * 3


@given(members)
def test_it_is_the_reward_minus_the_mean_of_the_others(pairs: list) -> None:
    rewards, groups = zip(*pairs, strict=True)
    for i, advantage in enumerate(leave_one_out_advantages(rewards, groups)):
        others = [r for j, (r, g) in enumerate(pairs) if j != i and g == groups[i] and r is not None]
        if rewards[i] is None:
            assert advantage is None
        else:
            assert advantage == pytest.approx(rewards[i] - fmean(others) if others else 0.0, abs=1e-9)


sequences = st.lists(st.lists(st.floats(-2, 2, allow_subnormal=False), max_size=6), max_size=6)


def test_by_hand_every_token_counts_alike() -> None:
    """Mean 2, deviations -2, 0, 2 and 0, variance 8 / 3."""
    whitened = whiten([[0.0, 2.0, 4.0], [], [2.0]])
    unit = 2.0 / math.sqrt(8 / 3 + 1e-8)
    assert [len(sequence) for sequence in whitened] == [3, 0, 1]
    assert [*whitened[0], *whitened[2]] == pytest.approx([-unit, 0.0, unit, 0.0])


def test_eps_bounds_what_noise_can_become() -> None:
    (whitened,) = whiten([[0.0, 1e-9]])
    assert max(map(abs, whitened)) < 1e-4


@pytest.mark.parametrize("lists", [[], [[]], [[0.7]], [[0.1, 0.1], [0.1]]])
def test_trap_nothing_to_compare_gives_exactly_zero(lists: list) -> None:
    assert whiten(lists) == [[0.0] * len(values) for values in lists]


@given(sequences)
def test_mean_zero_and_deviation_at_most_one(lists: list) -> None:
    values = [value for sequence in whiten(lists) for value in sequence]
    assert math.fsum(values) == pytest.approx(0.0, abs=1e-6)
    assert math.fsum(value**2 for value in values) <= max(len(values) - 1, 0) + 1e-6


@given(sequences)
def test_the_order_of_the_sequences_changes_nothing(lists: list) -> None:
    assert whiten(lists[::-1]) == whiten(lists)[::-1]


def test_reinforce_is_the_reward_itself() -> None:
    assert raw_advantages([1.0, None, 0.0, -1.0]) == [1.0, None, 0.0, -1.0]


def test_reinforce_plus_plus_by_hand() -> None:
    """Of (1, 0, 0, 1): mean 1/2, variance 4 * (1/4) / 3 = 1/3, so 0.5 * sqrt(3)."""
    expected = 0.5 * math.sqrt(3)
    assert whitened_advantages([1, 0, 0, 1]) == pytest.approx([expected, -expected, -expected, expected])


def test_trap_an_invalid_member_is_in_no_statistic() -> None:
    rewards = [1.0, None, 0.0, 0.5, None]
    advantages = whitened_advantages(rewards)
    assert [advantages[0], *advantages[2:4]] == whitened_advantages([1.0, 0.0, 0.5])
    assert (advantages[1], advantages[4]) == (None, None)


@pytest.mark.parametrize("rewards", [[], [None, None], [0.7], [0.1, 0.1, 0.1], [0.7, None]])
def test_trap_nothing_to_compare_in_a_batch_gives_exactly_zero(rewards: list) -> None:
    assert whitened_advantages(rewards) == [None if reward is None else 0.0 for reward in rewards]


GAE_CASES = json.loads((Path(__file__).parents[0] / "fixtures" / "gae.json").read_text())["cases"]
steps = st.lists(st.tuples(st.floats(-2, 2), st.floats(-2, 2)), min_size=1, max_size=10)


@pytest.mark.parametrize("case", GAE_CASES)
def test_advantages_and_returns_equal_the_reference(case: dict) -> None:
    advantages, returns = gae(case["rewards"], case["values"], gamma=case["gamma"], lam=case["lam"])
    assert advantages == pytest.approx(case["advantages"], abs=1e-12)
    assert returns == pytest.approx(case["returns"], abs=1e-12)


def test_gae_by_hand() -> None:
    """delta = 1 - 0.5 = 0.5 at the end; 0.5 * 0.5 - 0.25 = 0 before, plus 0.5 * 0.5 * 0.5 of what follows."""
    assert gae([0.0, 1.0], [0.25, 0.5], gamma=0.5, lam=0.5) == ([0.125, 0.5], [0.375, 1.0])


@given(steps)
def test_with_lambda_one_the_returns_are_the_sums_of_what_follows(pairs: list) -> None:
    rewards, values = zip(*pairs, strict=True)
    _, returns = gae(rewards, values, gamma=1.0, lam=1.0)
    assert returns == pytest.approx([sum(rewards[t:]) for t in range(len(rewards))], abs=1e-9)


@given(steps)
def test_with_lambda_zero_an_advantage_looks_one_token_ahead(pairs: list) -> None:
    rewards, values = zip(*pairs, strict=True)
    advantages, _ = gae(rewards, values, gamma=0.9, lam=0.0)
    following = [*values[1:], 0.0]
    assert advantages == pytest.approx([r + 0.9 * n - v for r, v, n in zip(rewards, values, following, strict=True)])


def test_a_perfect_critic_leaves_no_advantage() -> None:
    assert gae([0.0, 0.0, 1.0], [1.0, 1.0, 1.0], gamma=1.0, lam=0.95)[0] == [0.0, 0.0, 0.0]


def test_edges() -> None:
    assert gae([], [], gamma=1.0, lam=1.0) == ([], [])
    with pytest.raises(ValueError, match="argument"):
        gae([1.0], [0.0, 0.0], gamma=1.0, lam=1.0)
