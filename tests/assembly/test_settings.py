"""What settings that do not go together say."""

from contextlib import nullcontext

import pytest

from evoseek.assembly.sources import load_settings
from evoseek.config.sections import check_settings
from evoseek.errors import ConfigError
from evoseek.rollout.environments import SearchFirstEnv


class Own(SearchFirstEnv):
    """An environment of one's own, which searches for each question."""


@pytest.mark.parametrize(
    ("turns", "calls", "environment", "is_possible"),
    [
        (2, 1, "solver", True),
        (1, 1, "solver", False),
        (2, 0, "solver", False),
        (1, 0, "search_first", True),
        (1, 0, f"{__name__}:Own", True),
    ],
)
def test_an_answer_is_put_off_only_where_a_search_or_a_refusal_can_take_its_place(
    turns, calls, environment, is_possible
):
    sets = ["rollout.put_off=0.25", f"rollout.max_turns={turns}", f"rollout.max_tool_calls={calls}"]
    with nullcontext() if is_possible else pytest.raises(ConfigError, match=r"rollout\.put_off"):
        check_settings(load_settings(sets=[*sets, f"environment.name={environment}"]))
