"""A roller hands all that it has to its rollouts: of a question one, or a group, scored and refilled."""

import asyncio
from dataclasses import replace

import pytest

from evoseek.errors import ToolError
from evoseek.reward.functions import AnswerReward
from evoseek.rollout.limits import Limits
from evoseek.rollout.roller import Roller
from evoseek.rollout.run import run_trajectory
from evoseek.types import Invalid, Question, SampleRequest, Scored, StopConditions, StopReason

QUESTION = Question("q", "who is the mayor of Kalo ?", ("Meri",))
SAID = {
    "k/0": ["<search> Kalo </search>", "<answer> Meri </answer>"],
    "k/1": ["<answer> Tolu </answer>"],
    "k/2r1": ["<answer> Meri </answer>"],
}
SEARCH, FAILS = "<search> mayor </search>", "<search> fails </search>"


class Matches:
    """Rewards the golden answer; a judge that is down for the answer `down`."""

    def __init__(self):
        self.scored = []

    async def __call__(self, trajectory):
        self.scored.append(trajectory.id)
        if trajectory.answer == "down":
            raise ToolError("the judge is down")
        if trajectory.answer == "broken":
            raise KeyError("a bug")
        return Scored(float(trajectory.answer in trajectory.question.golden_answers))


def run(stage, reward, *scripts):
    """Every attempt at a member has the member's script."""
    attempts = [(f"0:q/{index}{suffix}", turns) for index, turns in enumerate(scripts) for suffix in ("", "r1", "r2")]
    sampler = stage.sampler(dict(attempts))
    setting = stage.setting(sampler)
    return asyncio.run(Roller(**setting).group(QUESTION, size=len(scripts), reward=reward, key="0:q"))


def test_members_are_rolled_out_and_scored_in_order(tags):
    group = run(tags, Matches(), [SEARCH, "<answer> Meri </answer>"], ["<answer> Kalo </answer>"], ["no action"])
    assert [trajectory.id for trajectory in group.trajectories] == ["0:q/0", "0:q/1", "0:q/2"]
    assert group.outcomes == (Scored(1.0), Scored(0.0), Scored(0.0))
    assert group.key == "0:q"


def test_trap_a_failed_tool_is_invalid_and_never_a_reward(tags):
    reward = Matches()
    group = run(tags, reward, [FAILS], ["<answer> Meri </answer>"])
    assert group.outcomes == (Invalid(StopReason.TOOL_FAILED, "search: ToolError: the engine is down"), Scored(1.0))
    assert reward.scored == ["0:q/1"]
    assert [trajectory.id for trajectory in group.trajectories] == ["0:q/0r2", "0:q/1"]


def test_trap_a_failed_judge_is_invalid_and_never_a_reward(tags):
    group = run(tags, Matches(), ["<answer> down </answer>"], ["<answer> Meri </answer>"])
    assert group.outcomes == (Invalid(StopReason.REWARD_FAILED, "the judge is down"), Scored(1.0))
    assert group.trajectories[0].stop_reason is StopReason.ANSWERED


def test_a_failed_sampler_is_invalid(tags):
    group = run(tags, Matches(), [SEARCH])
    assert group.outcomes[0].reason is StopReason.SAMPLER_FAILED


def test_a_bug_in_a_reward_function_is_raised(tags):
    with pytest.raises(KeyError):
        run(tags, Matches(), ["<answer> broken </answer>"])


def refill(stage, reward, script, **options):
    setting = stage.setting(stage.sampler(script))
    return asyncio.run(Roller(**setting).group(QUESTION, size=2, reward=reward, key="k", **options))


def test_an_invalid_member_is_rolled_out_again_and_its_failures_stay_countable(tags):
    right, wrong = ["<answer> Meri </answer>"], ["<answer> Kalo </answer>"]
    script = {"k/0": [FAILS], "k/0r1": ["<answer> down </answer>"], "k/0r2": right, "k/1": wrong}
    group = refill(tags, Matches(), script)
    assert [trajectory.id for trajectory in group.trajectories] == ["k/0r2", "k/1"]
    assert group.outcomes == (Scored(1.0), Scored(0.0))
    assert [(trajectory.id, failure.reason) for trajectory, failure in group.replaced] == [
        ("k/0", StopReason.TOOL_FAILED),
        ("k/0r1", StopReason.REWARD_FAILED),
    ]


@pytest.mark.parametrize("refills", [0, 1, 2])
def test_refills_are_bounded_and_the_last_failure_stays(tags, refills):
    script = {f"k/{name}": [FAILS] for name in ("0", "0r1", "0r2", "1", "1r1", "1r2")}
    group = refill(tags, Matches(), script, refills=refills)
    assert [failure.reason for _, failure in group.replaced] == [StopReason.TOOL_FAILED] * 2 * refills
    assert {outcome.reason for outcome in group.outcomes} == {StopReason.TOOL_FAILED}
    last = f"r{refills}" if refills else ""
    assert [trajectory.id for trajectory in group.trajectories] == [f"k/0{last}", f"k/1{last}"]


def test_a_rollout_of_a_roller(tags):
    sampler = tags.sampler(SAID)
    setting = tags.setting(sampler, max_turns=2, max_total_tokens=77)
    trajectory = asyncio.run(Roller(**setting).one(QUESTION, "k/0"))
    expected = asyncio.run(run_trajectory(QUESTION, trajectory_id="k/0", **tags.setting(tags.sampler(SAID))))
    assert trajectory == expected
    assert trajectory.answer == "Meri"
    request = sampler.requests[0]
    assert (request.temperature, request.seed, request.trajectory_id) == (0.7, 5, "k/0")
    assert sampler.released == ["k/0"]


def test_a_rollers_limits_are_its_own(tags):
    setting = tags.setting(tags.sampler(SAID)) | {"limits": Limits(max_turns=1)}
    assert asyncio.run(Roller(**setting).one(QUESTION, "k/0")).stop_reason == "max_turns"


def test_a_prompt_has_to_leave_room_for_a_turn_or_for_half_of_all(tags):
    setting = tags.setting(tags.sampler(SAID))
    length = len(setting["renderer"].render_prompt(setting["env"].messages(QUESTION)))
    for limits, has_room in (
        (Limits(max_total_tokens=length + 9, max_tokens_per_turn=9), True),
        (Limits(max_total_tokens=length + 8, max_tokens_per_turn=9), False),
        (Limits(max_total_tokens=2 * length, max_tokens_per_turn=999), True),
        (Limits(max_total_tokens=2 * length - 2, max_tokens_per_turn=999), False),
    ):
        assert Roller(**setting | {"limits": limits}).has_room(QUESTION) == has_room


def test_a_group_of_a_roller_is_scored_and_refilled(tags):
    roller = Roller(**tags.setting(tags.sampler(SAID)))
    group = asyncio.run(roller.group(QUESTION, size=3, reward=AnswerReward(), key="k"))
    assert [trajectory.id for trajectory in group.trajectories] == ["k/0", "k/1", "k/2r1"]
    assert [outcome.reward for outcome in group.outcomes] == [1.0, 0.0, 1.0]
    assert [(failed.id, type(outcome)) for failed, outcome in group.replaced] == [("k/2", Invalid)]


def test_a_roller_at_another_temperature_is_the_same_in_all_else(tags):
    sampler = tags.sampler(SAID)
    roller = Roller(**tags.setting(sampler))
    asyncio.run(roller.at(0.0).one(QUESTION, "k/1"))
    assert (sampler.requests[0].temperature, sampler.requests[0].seed) == (0.0, 5)
    assert roller.at(None) is roller
    assert roller.temperature == 0.7


def answers_at_once(tags):
    """A policy that searches only where its turn begins so."""

    def script(request):
        begins = tags.tokenizer.decode(request.begins) if request.begins else ""
        return f"{begins} mayor </search>" if begins else "<answer> Meri </answer>"

    return tags.sampler(script)


def test_the_last_of_a_group_search_in_place_of_their_first_answer(tags):
    """The policy writes on from the search's beginning; its next answer counts."""
    sampler = answers_at_once(tags)
    group = asyncio.run(Roller(**tags.setting(sampler)).group(QUESTION, size=3, reward=Matches(), key="k", put_off=1))
    assert [[result.call.arguments["query"] for result in one.tool_results] for one in group.trajectories] == [
        [],
        [],
        ["mayor"],
    ]
    assert [one.answer for one in group.trajectories] == ["Meri"] * 3
    kinds = [segment.kind for segment in group.trajectories[2].segments]
    assert kinds == ["prompt", "action", "observation", "action"]


def test_no_answer_is_put_off_unless_it_is_asked_for(tags):
    roller = Roller(**tags.setting(answers_at_once(tags)))
    group = asyncio.run(roller.group(QUESTION, size=2, reward=Matches(), key="k"))
    assert [one.tool_results for one in group.trajectories] == [(), ()]


@pytest.mark.parametrize("limits", [{"max_tool_calls": 0}, {"max_turns": 1}])
def test_an_answer_is_not_put_off_where_no_call_is_left(tags, limits):
    sampler = tags.sampler({"k/0": ["<answer> Meri </answer>"]})
    roller = Roller(**{**tags.setting(sampler), "limits": Limits(**limits)})
    group = asyncio.run(roller.group(QUESTION, size=1, reward=Matches(), key="k", put_off=1))
    assert (group.trajectories[0].answer, len(sampler.requests)) == ("Meri", 1)


def test_an_answer_after_the_final_notice_is_not_put_off(tags):
    sampler = tags.sampler({"k/0": ["nothing", "nothing", "<answer> Meri </answer>"]})
    limits = Limits(max_turns=6, max_tool_calls=5, max_malformed=1, final_answer="Answer now.")
    roller = Roller(**{**tags.setting(sampler), "limits": limits})
    group = asyncio.run(roller.group(QUESTION, size=1, reward=Matches(), key="k", put_off=1))
    assert (group.trajectories[0].answer, len(sampler.requests)) == ("Meri", 3)


def test_an_answer_is_not_put_off_where_no_room_is_left_for_another_turn(tags):
    for room, is_put_off in ((39, False), (40, True)):
        sampler = answers_at_once(tags)
        given = tags.setting(sampler)
        first = asyncio.run(Roller(**given).group(QUESTION, size=1, reward=Matches(), key="k")).trajectories[0]
        limits = Limits(max_tokens_per_turn=20, max_total_tokens=len(first.segments[0].token_ids) + room)
        roller = Roller(**{**tags.setting(sampler), "limits": limits})
        asked = asyncio.run(roller.group(QUESTION, size=1, reward=Matches(), key="k", put_off=1)).trajectories[0]
        assert bool(asked.tool_results) is is_put_off


@pytest.mark.parametrize(("tokens", "is_put_off"), [(35, False), (36, True)])
def test_an_answer_is_not_put_off_where_its_thought_takes_more_than_half_of_the_turn(tags, tokens, is_put_off):
    """The search begins with the thought."""

    def script(request):
        begins = tags.tokenizer.decode(request.begins) if request.begins else ""
        return f"{begins} mayor </search>" if begins else "the mayor is Meri , as I know <answer> Meri </answer>"

    request = SampleRequest("t", 0, (), 9, 1.0, StopConditions(), 0)
    answer = tags.tokenizer.encode(script(request), add_special_tokens=False)
    assert len(tags.renderer.put_off(answer)) == 18
    roller = Roller(**{**tags.setting(tags.sampler(script)), "limits": Limits(max_tokens_per_turn=tokens)})
    asked = asyncio.run(roller.group(QUESTION, size=1, reward=Matches(), key="k", put_off=1)).trajectories[0]
    assert bool(asked.tool_results) is is_put_off


def test_an_answer_is_not_put_off_when_its_time_is_over(tags):
    class Slow(type(answers_at_once(tags))):
        async def sample(self, request):
            return replace(await super().sample(request), seconds=2.0)

    sampler = answers_at_once(tags)
    sampler.__class__ = Slow
    roller = Roller(**{**tags.setting(sampler), "limits": Limits(deadline_s=1.0)})
    asked = asyncio.run(roller.group(QUESTION, size=1, reward=Matches(), key="k", put_off=1)).trajectories[0]
    assert (asked.answer, asked.tool_results) == ("Meri", ())


def test_an_answer_is_put_off_again_where_the_rollout_is_repeated(tags):
    """The first attempt's search fails; the one that replaces it searches, too."""

    def script(request):
        begins = tags.tokenizer.decode(request.begins) if request.begins else ""
        query = "mayor" if request.trajectory_id.endswith("r1") else "fails"
        return f"{begins} {query} </search>" if begins else "<answer> Meri </answer>"

    roller = Roller(**tags.setting(tags.sampler(script)))
    group = asyncio.run(roller.group(QUESTION, size=1, reward=Matches(), key="k", put_off=1))
    assert [trajectory.id for trajectory, _ in group.replaced] == ["k/0"]
    assert [result.call.arguments["query"] for result in group.trajectories[0].tool_results] == ["mayor"]
