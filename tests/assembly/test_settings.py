"""What settings that do not go together say."""

from contextlib import nullcontext

import pytest

from evoseek.assembly.sources import load_settings
from evoseek.config.sections import changed, check_effect, check_settings
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


@pytest.mark.parametrize(
    "given",
    ["environment.name=search_first", "tools=[]", "rollout.max_tool_calls=2", "rollout.max_malformed=1"],
)
@pytest.mark.parametrize("agent", ["command", "tests.doubles.agents:own_loop", "loop"])
def test_settings_of_the_own_loop_are_refused_beside_an_agent(given, agent):
    settings = load_settings(sets=[given, f"agent.name={agent}"])
    key = given.partition("=")[0]
    words = rf"{key} is set, but it has no effect.*An agent has prompts, tools and a loop of its own\. Leave {key} out"
    with nullcontext() if agent == "loop" else pytest.raises(ConfigError, match=words):
        check_effect(settings, changed(settings))
