import math

import pytest

from evoseek.credit.reinforce import raw_advantages, whitened_advantages


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
def test_trap_nothing_to_compare_gives_exactly_zero(rewards: list) -> None:
    assert whitened_advantages(rewards) == [None if reward is None else 0.0 for reward in rewards]
