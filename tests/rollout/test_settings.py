from __future__ import annotations

import pytest

from evoseek.rollout.settings import GroupRolloutSettings


@pytest.mark.parametrize(
    ("share", "size", "number"), [(0.0, 8, 0), (0.25, 8, 2), (0.1, 8, 1), (0.9, 4, 4), (0.1, 4, 0)]
)
def test_a_share_of_the_rollouts_whose_answer_is_put_off(share: float, size: int, number: int):
    """Some but not all of them, or else none."""
    settings = GroupRolloutSettings(put_off=share, group_size=size)
    assert settings.answers_put_off == number
    assert bool([*settings.problems()]) == (share > 0 and number in (0, size))


@pytest.mark.parametrize(("turns", "calls", "is_possible"), [(2, 1, True), (1, 1, False), (2, 0, False)])
def test_an_answer_is_put_off_only_where_a_search_can_take_its_place(turns: int, calls: int, is_possible: bool):
    settings = GroupRolloutSettings(put_off=0.25, max_turns=turns, max_tool_calls=calls)
    assert bool([*settings.problems()]) is not is_possible
