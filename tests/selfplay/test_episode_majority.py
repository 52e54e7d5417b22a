import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.protocols import RewardFn
from evoseek.reward.functions import AnswerReward, RewardSettings
from evoseek.reward.shaping import ShapedReward
from evoseek.selfplay.episode import majority_answer, relabel
from evoseek.text.normalization import METRICS, normalise
from evoseek.types import Invalid, Outcome, Question, Scored, StopReason, Trajectory, TrajectoryGroup

DOWN = Invalid(StopReason.TOOL_FAILED, "down")


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (["Meri", "Jonas", "meri!"], "Meri"),
        (["Jonas", "the Meri", "meri"], "the Meri"),
        (["Jonas", "Meri", "Meri", "Jonas"], "Jonas"),  # equal: the first
        ([None, "?", "the", None, "Meri"], "Meri"),  # what says nothing has no vote
        ([None, None], None),
        (["", "..."], None),
        ([], None),
    ],
)
def test_the_most_frequent_answer(answers: list[str | None], expected: str | None) -> None:
    assert majority_answer(answers) == expected


@given(st.lists(st.sampled_from(["Meri", "meri", "Jonas", "Tolu", "the"]), min_size=1))
def test_no_answer_is_more_frequent(answers: list[str]) -> None:
    normal = [normalise(answer) for answer in answers if normalise(answer)]
    chosen = majority_answer(answers)
    assert chosen is None if not normal else normal.count(normalise(chosen)) == max(map(normal.count, normal))


def group(*members: tuple[str | None, Outcome], golden: str = "Jonas") -> TrajectoryGroup:
    question = Question("q", "who ?", (golden,))
    reason = StopReason.ANSWERED
    trajectories = tuple(Trajectory("q/0", question, "solver", (), (), (), reason, answer) for answer, _ in members)
    return TrajectoryGroup("q", trajectories, tuple(outcome for _, outcome in members), ((trajectories[0], DOWN),))


def old(value: float) -> Scored:
    return Scored(value, {"exact_match": value})


def new(value: float, agrees: float) -> Scored:
    return Scored(value, {"exact_match": value, "label/agrees": agrees})


def relabelled(given: TrajectoryGroup, reward: RewardFn | None = None) -> TrajectoryGroup:
    return asyncio.run(relabel(given, reward or AnswerReward()))


def test_members_are_scored_against_the_majority_instead_of_the_proposers_answer() -> None:
    before = group(("Meri", old(0.0)), ("Jonas", old(1.0)), ("meri", old(0.0)), (None, old(0.0)))
    after = relabelled(before)
    assert after.outcomes == (new(1, 0), new(0, 0), new(1, 0), new(0, 0))
    assert (after.key, after.trajectories, after.replaced) == (before.key, before.trajectories, before.replaced)
    assert relabelled(group(("jonas", old(1.0)), ("Meri", old(0.0)))).outcomes == (new(1, 1), new(0, 1))


def test_failed_members_have_no_vote_and_stay_invalid() -> None:
    after = relabelled(group(("Meri", DOWN), ("Meri", DOWN), ("Jonas", old(1.0))))
    assert after.outcomes == (DOWN, DOWN, new(1, 1))


def test_without_any_answer_all_are_wrong() -> None:
    assert relabelled(group((None, old(0.0)), ("?", old(0.0)), (None, DOWN))).outcomes == (new(0, 0), new(0, 0), DOWN)


def test_the_penalty_for_a_wrong_answer_is_by_the_majority() -> None:
    refusal = "Not found in the documents."
    given = group(*((answer, old(0.0)) for answer in ("Alpha", "Alpha", "Alpha", "Beta", refusal)), golden="Beta")
    shaped = ShapedReward(AnswerReward(), RewardSettings(wrong_penalty=0.5))
    assert [outcome.reward for outcome in relabelled(given, shaped).outcomes] == [1.0, 1.0, 1.0, -0.5, 0.0]  # pyright: ignore[reportAttributeAccessIssue]


@given(
    st.lists(st.sampled_from(["Meri", "Meri Tolu", "Jonas", "unknown", "?", None]), min_size=1, max_size=5),
    st.sampled_from(sorted(METRICS)),
    st.lists(st.sampled_from([0.0, 0.25]), min_size=3, max_size=3),
    st.sampled_from([None, 10]),
)
def test_every_part_of_a_reward_is_what_it_would_be_if_the_majority_were_the_right_answer(
    answers: list[str | None], metric: str, weights: list[float], overlong: int | None
) -> None:
    """Of any reward, also of one that has parts which other files do not know."""
    names = ("evidence_weight", "wrong_penalty", "unanswered_penalty")
    own = RewardSettings(overlong_max=overlong, **dict(zip(names, weights, strict=True)))  # pyright: ignore[reportArgumentType]
    reward = ShapedReward(AnswerReward(metric), own)
    made = group(*((answer, old(0.0)) for answer in answers))
    before = tuple(asyncio.run(reward(one)) for one in made.trajectories)
    after = relabelled(replace(made, outcomes=before), reward)
    label = majority_answer(answers)
    wanted = group(*((answer, old(0.0)) for answer in answers), golden=label or "Jonas")
    for trajectory, outcome in zip(wanted.trajectories, after.outcomes, strict=True):
        right = asyncio.run(reward(trajectory))
        assert isinstance(outcome, Scored)
        assert isinstance(right, Scored)
        assert outcome.reward == right.reward
        assert {**outcome.parts, "label/agrees": 0} == {**right.parts, "label/agrees": 0}
