import pytest

from evoseek.rollout.samples import group_samples
from evoseek.types import Invalid, Question, Scored, Segment, StopReason, Trajectory, TrajectoryGroup


def trajectory(*segments, name="k/0"):
    question = Question("q", "who ?", ("Meri",))
    return Trajectory(name, question, "solver", segments, (), (), StopReason.ANSWERED, policy_version=7)


SEARCHED = trajectory(
    Segment("prompt", (5, 9)),
    Segment("action", (20, 21), (-0.5, -0.25)),
    Segment("observation", (30,)),
    Segment("action", (40,), (-1.0,)),
)


def test_the_advantage_lies_on_action_tokens_only():
    (sample,) = group_samples(TrajectoryGroup("k", (SEARCHED,), (Scored(1.0),)), [0.5])
    assert sample.token_ids == (5, 9, 20, 21, 30, 40)
    assert sample.loss_mask == (False, False, True, True, False, True)
    assert sample.advantages == (0.0, 0.0, 0.5, 0.5, 0.0, 0.5)
    assert sample.rollout_logprobs == (0.0, 0.0, -0.5, -0.25, 0.0, -1.0)
    assert (sample.role, sample.group, sample.policy_version, sample.weight) == ("solver", "k", 7, 1.0)


def test_members_without_an_advantage_or_an_action_are_left_out():
    prompt_only = trajectory(Segment("prompt", (5,)))
    group = TrajectoryGroup(
        "k", (SEARCHED, SEARCHED, prompt_only), (Scored(1.0), Invalid(StopReason.DEADLINE), Scored(0))
    )
    assert len(group_samples(group, [1.0, None, -1.0])) == 1


def test_trap_an_invalid_member_cannot_have_an_advantage():
    group = TrajectoryGroup("k", (SEARCHED,), (Invalid(StopReason.TOOL_FAILED),))
    with pytest.raises(ValueError, match="tool_failed"):
        group_samples(group, [0.0])


def test_one_advantage_for_each_member():
    with pytest.raises(ValueError, match="argument"):
        group_samples(TrajectoryGroup("k", (SEARCHED,), (Scored(1.0),)), [1.0, 2.0])
