import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.reward.answer import normalise
from evoseek.selfplay.episode import majority_answer, relabel
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


def test_members_are_scored_against_the_majority_instead_of_the_proposers_answer() -> None:
    before = group(("Meri", old(0.0)), ("Jonas", old(1.0)), ("meri", old(0.0)), (None, old(0.0)))
    after = relabel(before)
    assert after.outcomes == (new(1, 0), new(0, 0), new(1, 0), new(0, 0))
    assert (after.key, after.trajectories, after.replaced) == (before.key, before.trajectories, before.replaced)
    assert relabel(group(("jonas", old(1.0)), ("Meri", old(0.0)))).outcomes == (new(1, 1), new(0, 1))


def test_failed_members_have_no_vote_and_stay_invalid() -> None:
    after = relabel(group(("Meri", DOWN), ("Meri", DOWN), ("Jonas", old(1.0))))
    assert after.outcomes == (DOWN, DOWN, new(1, 1))


def test_without_any_answer_all_are_wrong() -> None:
    assert relabel(group((None, old(0.0)), ("?", old(0.0)), (None, DOWN))).outcomes == (new(0, 0), new(0, 0), DOWN)


def test_the_metric_is_settable_and_the_rest_of_a_reward_stays() -> None:
    paid = Scored(0.0 + 0.5 * 0.5, {"f1": 0.0, "unshaped": 0.0, "evidence": 0.5})
    after = relabel(group(("Meri", paid), ("Meri of Kalo", paid), ("Meri", paid)), "f1")
    # f1 of "meri of kalo" against "meri": precision 1/3, recall 1, so 2 * (1/3) / (4/3) = 1/2
    assert [outcome.parts["f1"] for outcome in after.outcomes] == [1.0, 0.5, 1.0]
    assert [outcome.parts["unshaped"] for outcome in after.outcomes] == [1.0, 0.5, 1.0]
    assert [outcome.reward for outcome in after.outcomes] == [1.25, 0.75, 1.25]
