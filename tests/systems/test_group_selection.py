import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.credit.advantages import group_advantages
from evoseek.systems.dspo import GroupSelection, Signal, group_signal

MIXED, RIGHT, WRONG, FAILED = [1, 0, 1], [1, 1, 1], [0, 0, 0], [1, None, None]
rewards = st.lists(st.sampled_from([None, 0.0, 1.0]), max_size=6)


@pytest.mark.parametrize(
    ("values", "signal"),
    [
        (MIXED, Signal.MIXED),
        (RIGHT, Signal.ALL_RIGHT),
        (WRONG, Signal.ALL_WRONG),
        (FAILED, Signal.TOO_FEW_VALID),
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


@given(rewards)
def test_a_group_is_mixed_exactly_if_it_has_successes_and_failures_and_so_advantages(values: list) -> None:
    successes, valid = values.count(1.0), len(values) - values.count(None)
    is_mixed = group_signal(values) is Signal.MIXED
    assert is_mixed == (0 < successes < valid)
    assert is_mixed == any(group_advantages(values, ["q"] * len(values)))


def test_a_batch_is_filled_round_by_round() -> None:
    selection = GroupSelection(wanted=2, max_draws=8)
    assert (selection.next_draw, selection.missing) == (2, 2)
    assert selection.add("a", RIGHT) is False
    assert selection.add("b", MIXED) is True
    assert (selection.next_draw, selection.missing, selection.drawn) == (1, 1, 2)
    assert selection.add("c", FAILED) is False
    assert selection.add("d", MIXED) is True
    assert (selection.next_draw, selection.missing, selection.drawn) == (0, 0, 4)
    assert selection.kept == ["b", "d"]
    assert selection.metrics() == {
        "rollout/filter/drawn": 4.0,
        "rollout/filter/kept": 2.0,
        "rollout/filter/missing": 0.0,
        "rollout/filter/all_right": 1.0,
        "rollout/filter/all_wrong": 0.0,
        "rollout/filter/too_few_valid": 1.0,
        "rollout/filter/frac_reward_zero_std": pytest.approx(1 / 3),
    }


def test_more_than_was_missing_is_drawn_but_not_kept() -> None:
    selection = GroupSelection(wanted=1, max_draws=4)
    assert [selection.add(key, MIXED) for key in "abc"] == [True, False, False]
    assert selection.kept == ["a"]
    assert selection.metrics()["rollout/filter/drawn"] == 3.0


def test_trap_groups_without_a_signal_end_in_a_smaller_batch_and_never_in_a_hang() -> None:
    for values in (RIGHT, WRONG, FAILED):
        selection = GroupSelection(wanted=3, max_draws=10)
        rounds = []
        while selection.next_draw:
            rounds.append(selection.next_draw)
            for _ in range(selection.next_draw):
                selection.add(f"group {selection.drawn}", values)
        assert sum(rounds) == selection.drawn == 10
        assert rounds == [3, 3, 3, 1]
        assert selection.missing == 3
        assert selection.kept == []


def test_trap_a_key_is_one_group() -> None:
    selection = GroupSelection(wanted=2, max_draws=8)
    selection.add("a", WRONG)
    with pytest.raises(ValueError, match="'a'"):
        selection.add("a", MIXED)


@given(st.integers(1, 8), st.integers(1, 4), st.integers(0, 1000))
def test_the_bounds_hold_whatever_is_drawn(wanted: int, refill: int, seed: int) -> None:
    choose = random.Random(seed).choice
    selection = GroupSelection(wanted=wanted, max_draws=refill * wanted)
    while (count := selection.next_draw) > 0:
        for _ in range(count):
            selection.add(str(selection.drawn), choose([MIXED, RIGHT, WRONG, FAILED]))
    assert selection.drawn <= refill * wanted
    assert len(selection.kept) + selection.missing == wanted
    assert selection.missing == 0 or selection.drawn == refill * wanted
    assert all(selection.signals[key] is Signal.MIXED for key in selection.kept)
