"""The credit functions by their names, on one batch: a group of two, and a group whose second member is Invalid."""

import pytest

from evoseek.assembly.sources import load_settings
from evoseek.config.registry import KINDS, build, find
from evoseek.credit import CriticCredit, credits_with_critic, is_relative, needs_critic

REWARDS, GROUPS = [1.0, 0.0, 0.0, None], ["a", "a", "b", "b"]


def credit(name, **settings):
    options = {"credit.name": name, **{f"credit.{key}": value for key, value in settings.items()}}
    return build("credit", load_settings(options=options).credit, None)


def test_relative_to_the_group():
    high, low, alone, invalid = credit("group")(REWARDS, GROUPS)
    assert (high, low) == (pytest.approx(0.5**0.5, rel=1e-4), pytest.approx(-(0.5**0.5), rel=1e-4))
    assert (alone, invalid) == (0.0, None)
    assert credit("group", scale="none")(REWARDS, GROUPS) == [0.5, -0.5, 0.0, None]
    assert credit("group", scale="none", singleton="drop")(REWARDS, GROUPS) == [0.5, -0.5, None, None]
    assert credit("group", scale="none", singleton="raw")([1.0, 0.0, 3.0, None], GROUPS) == [0.5, -0.5, 3.0, None]


def test_relative_to_the_others():
    assert credit("leave-one-out")(REWARDS, GROUPS)[:2] == [1.0, -1.0]


def test_relative_to_the_batch_or_to_nothing():
    rewards, groups = [1.0, 0.0, None, 0.0], ["a", "a", "b", "b"]
    assert credit("raw")(rewards, groups) == rewards
    assert credit("whitened")(rewards, groups)[0] == pytest.approx(2 / 3 / (1 / 3) ** 0.5)


def test_a_critics_estimate_is_of_the_tokens_of_one_rollout():
    """With gamma and lambda of a half: deltas 0 + 0.5 x 2 - 1 = 0 and 3 - 2 = 1; the first adds 0.25 of the second."""
    estimate = credit("gae", gamma=0.5, lam=0.5)
    assert estimate == CriticCredit(0.5, 0.5)
    advantages, returns = estimate([0.0, 3.0], [1.0, 2.0])
    assert (advantages, returns) == ([0.25, 1.0], [1.25, 3.0])


@pytest.mark.parametrize("name", sorted({*KINDS["credit"].parts} - {*credits_with_critic()}))
def test_a_credit_is_relative_if_equal_rewards_in_a_group_give_no_signal(name):
    equal = credit(name)([1.0, 1.0, 0.0, 0.5], GROUPS)[:2]
    assert is_relative(find("credit", name)) == (equal == [0.0, 0.0])


def test_a_credit_without_the_attributes_is_not_relative_and_needs_no_critic():
    assert not is_relative(object())
    assert not needs_critic(object())
    assert is_relative(find("credit", "group"))
    assert needs_critic(find("credit", "gae"))
