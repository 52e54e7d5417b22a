"""A player hands all that it has to the rollouts: they are those of the functions that it stands for."""

import asyncio

from evoseek.rollout.group import run_group
from evoseek.rollout.player import Player

from evoseek.reward.functions import AnswerReward
from evoseek.rollout.limits import Limits
from evoseek.rollout.run import run_trajectory
from evoseek.types import Invalid, Question

QUESTION = Question("q", "who is the mayor of Kalo ?", ("Meri",))
SAID = {
    "k/0": ["<search> Kalo </search>", "<answer> Meri </answer>"],
    "k/1": ["<answer> Tolu </answer>"],
    "k/2r1": ["<answer> Meri </answer>"],
}


def test_a_rollout_of_a_player(tags):
    sampler = tags.sampler(SAID)
    setting = tags.setting(sampler, max_turns=2, max_total_tokens=77)
    trajectory = asyncio.run(Player(**setting).play(QUESTION, "k/0"))
    expected = asyncio.run(run_trajectory(QUESTION, trajectory_id="k/0", **tags.setting(tags.sampler(SAID))))
    assert trajectory == expected
    assert trajectory.answer == "Meri"
    request = sampler.requests[0]
    assert (request.temperature, request.seed, request.trajectory_id) == (0.7, 5, "k/0")
    assert sampler.released == ["k/0"]


def test_a_players_limits_are_its_own(tags):
    setting = tags.setting(tags.sampler(SAID)) | {"limits": Limits(max_turns=1)}
    assert asyncio.run(Player(**setting).play(QUESTION, "k/0")).stop_reason == "max_turns"


def test_a_prompt_has_to_leave_room_for_a_turn_or_for_half_of_all(tags):
    setting = tags.setting(tags.sampler(SAID))
    length = len(setting["renderer"].render_prompt(setting["env"].messages(QUESTION)))
    for limits, has_room in (
        (Limits(max_total_tokens=length + 9, max_tokens_per_turn=9), True),
        (Limits(max_total_tokens=length + 8, max_tokens_per_turn=9), False),
        (Limits(max_total_tokens=2 * length, max_tokens_per_turn=999), True),
        (Limits(max_total_tokens=2 * length - 2, max_tokens_per_turn=999), False),
    ):
        assert Player(**setting | {"limits": limits}).has_room(QUESTION) == has_room


def test_a_group_of_a_player_is_scored_and_refilled(tags):
    player = Player(**tags.setting(tags.sampler(SAID)))
    group = asyncio.run(player.group(QUESTION, size=3, reward=AnswerReward(), key="k"))
    alike = run_group(QUESTION, size=3, reward=AnswerReward(), key="k", **tags.setting(tags.sampler(SAID)))
    assert group == asyncio.run(alike)
    assert [trajectory.id for trajectory in group.trajectories] == ["k/0", "k/1", "k/2r1"]
    assert [outcome.reward for outcome in group.outcomes] == [1.0, 0.0, 1.0]
    assert [(failed.id, type(outcome)) for failed, outcome in group.replaced] == [("k/2", Invalid)]
