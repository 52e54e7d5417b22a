from __future__ import annotations

import pytest

from evoseek.rollout.settings import CommandSettings, GroupRolloutSettings


@pytest.mark.parametrize(
    ("share", "size", "number"), [(0.0, 8, 0), (0.25, 8, 2), (0.1, 8, 1), (0.9, 4, 4), (0.1, 4, 0)]
)
def test_a_share_of_the_rollouts_whose_answer_is_put_off(share: float, size: int, number: int):
    """Some but not all of them, or else none."""
    settings = GroupRolloutSettings(put_off=share, group_size=size)
    assert settings.answers_put_off == number
    assert bool([*settings.problems()]) == (share > 0 and number in (0, size))


@pytest.mark.parametrize(
    ("program", "words"),
    [("", "is empty"), (" ", "is empty"), ("python 'a.py", "No closing quotation"), ("python a", "")],
)
def test_the_command_line_of_an_agent_is_checked_before_it_runs(program: str, words: str):
    found = " ".join(CommandSettings(name="command", program=program).problems())
    assert words in found
    assert bool(words) == ("Give the agent's command line" in found)
