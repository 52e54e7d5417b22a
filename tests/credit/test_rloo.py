import random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.credit.rloo import leave_one_out_advantages

members = st.lists(
    st.tuples(st.none() | st.floats(-2, 2, allow_subnormal=False), st.integers(0, 3)), min_size=1, max_size=24
)


def test_by_hand() -> None:
    """1 - (0 + 0.5) / 2, 0 - (1 + 0.5) / 2, 0.5 - (1 + 0) / 2; the group of one has nothing to compare with."""
    advantages = leave_one_out_advantages([1.0, 0.0, 0.7, 0.5], ["a", "a", "b", "a"])
    assert advantages == pytest.approx([0.75, -0.75, 0.0, 0.0])


def test_trap_an_invalid_member_leaves_every_baseline() -> None:
    """The others are (1, 0, 0): 1 - 0 and 0 - 1/2; counted as a 0 it would give 1 and -1/3."""
    advantages = leave_one_out_advantages([1, None, 0, 0], ["q"] * 4)
    assert advantages[1] is None
    assert [advantages[0], *advantages[2:]] == pytest.approx([1.0, -0.5, -0.5])
    assert leave_one_out_advantages([0.7, None], ["q", "q"]) == [0.0, None]


def test_trap_equal_rewards_give_exactly_zero() -> None:
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


@given(members, st.integers(0, 1000))
def test_permutation_equivariant_and_summing_to_zero(pairs: list, seed: int) -> None:
    shuffled = list(range(len(pairs)))
    random.Random(seed).shuffle(shuffled)
    rewards, groups = zip(*pairs, strict=True)
    advantages = leave_one_out_advantages(rewards, groups)
    assert leave_one_out_advantages([rewards[i] for i in shuffled], [groups[i] for i in shuffled]) == [
        advantages[i] for i in shuffled
    ]
    for key in set(groups):
        total = sum(a for a, group in zip(advantages, groups, strict=True) if group == key and a is not None)
        assert total == pytest.approx(0.0, abs=1e-9)
