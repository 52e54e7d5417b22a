"""Episodes as one process hands them to another."""

import json

from evoseek.rollout.trajectory_json import trajectory_from_json
from evoseek.selfplay.episode_json import episode_from_json, episode_to_json, proposal_to_json
from evoseek.types import (
    Action,
    Episode,
    Invalid,
    Question,
    Scored,
    Segment,
    StopReason,
    ToolCall,
    Trajectory,
    TrajectoryGroup,
)

TASK = Question("t1", "kalo", ("meri",), {"requested": 2, "task": "t1"})
QUESTION = Question("t1/q", "who is the mayor of kalo ?", ("meri",), {"evidence": ["a#0"]})


def rollout(id, role, **changes):
    segments = Segment("prompt", (1, 2)), Segment("action", (3, 4), (-0.1, -1 / 3), 5)
    actions = (Action("<search> kalo </search>", (ToolCall("search", {"query": "kalo"}),)),)
    given = {"stop_reason": StopReason.ANSWERED, "answer": "meri", "policy_version": 4, **changes}
    return Trajectory(id, QUESTION, role, segments, actions, (), **given)


PROPOSAL = rollout("step/proposals/t1", "proposer")
FAILED = rollout("f", "proposer", stop_reason=StopReason.TOOL_FAILED, answer=None, failure="down")
DOWN = Invalid(StopReason.TOOL_FAILED, "down")
SOLVERS = TrajectoryGroup("g", (rollout("g/0", "solver"), FAILED), (Scored(0.5, {"f1": 1 / 3}), DOWN))


def back(episode):
    return episode_from_json(json.loads(json.dumps(episode_to_json(episode))))


def test_an_episode_comes_back_as_it_was():
    checks = ((rollout("c", "reader"), Scored(1.0)), (FAILED, DOWN))
    whole = Episode(PROPOSAL, Scored(0.25), QUESTION, None, checks, SOLVERS, ((FAILED, DOWN),))
    assert back(whole) == whole


def test_so_does_one_that_was_rejected_or_failed():
    for episode in (Episode(PROPOSAL, Scored(0.0), rejected="duplicate"), Episode(FAILED, DOWN)):
        assert back(episode) == episode


def test_so_does_a_proposal_alone():
    assert trajectory_from_json(json.loads(json.dumps(proposal_to_json(PROPOSAL)))) == PROPOSAL
