"""Which rollouts of a run are kept to be learnt from."""

import pytest

from evoseek.errors import DataError
from evoseek.rollout.record import TrajectoryWriter
from evoseek.training.kept_rollouts import Selection, kept_rollouts
from evoseek.types import Action, Invalid, Question, Scored, Segment, StopReason, Trajectory, TrajectoryGroup


def rollout(identifier, question, length, *, role="solver", answer="meri"):
    segments = (Segment("prompt", (1, 2)), Segment("action", tuple(range(length)), (0.0,) * length))
    stop = StopReason.ANSWERED if answer else StopReason.MALFORMED
    actions = (Action("a", answer=answer),)
    return Trajectory(identifier, Question(question, question, ()), role, segments, actions, (), stop, answer)


@pytest.fixture
def record(tmp_path):
    """Of question a four rollouts that are right, two of the same tokens; of b none; of c one, which a judge failed."""
    members = [
        (rollout("a/long", "a", 9), Scored(1.0)),
        (rollout("a/short", "a", 3), Scored(1.0)),
        (rollout("a/wrong", "a", 2), Scored(0.5)),
        (rollout("a/again", "a", 3), Scored(1.0)),
        (rollout("a/middle", "a", 5), Scored(1.0)),
        (rollout("b/unanswered", "b", 4, answer=None), Scored(1.0)),
        (rollout("b/proposer", "b", 4, role="proposer"), Scored(1.5)),
        (rollout("c/failed", "c", 4), Invalid(StopReason.REWARD_FAILED)),
        (rollout("d/0", "d", 4), Scored(1.0)),
    ]
    path = tmp_path / "trajectories.jsonl"
    groups = [TrajectoryGroup("g", tuple(t for t, _ in members), tuple(o for _, o in members))]
    TrajectoryWriter(path, lambda ids: " ".join(map(str, ids))).write(1, groups)
    return path


def names(record, **selection):
    return [kept.trajectory.id for kept in kept_rollouts(record, Selection(**selection))]


def test_answers_of_enough_reward_are_kept_in_the_order_of_the_record_and_the_same_tokens_once(record):
    assert names(record) == ["a/long", "a/short", "a/middle", "d/0"]
    assert names(record, min_reward=0.5) == ["a/long", "a/short", "a/wrong", "a/middle", "d/0"]


def test_of_each_question_the_shortest_ones(record):
    assert names(record, per_question=1) == ["a/short", "d/0"]
    assert names(record, per_question=2) == ["a/short", "a/middle", "d/0"]


def test_the_texts_of_the_segments_come_along(record):
    assert kept_rollouts(record, Selection(per_question=1))[0].texts == ("1 2", "0 1 2")


def test_without_any_the_highest_reward_is_told(record):
    with pytest.raises(
        DataError, match=r"None of the 8 rollouts of a solver .* highest reward of one is 1, and .*min_reward is 2"
    ):
        names(record, min_reward=2.0)
