"""Dr. Zero's phases with scripted episodes, and an update that records what it is given."""

import asyncio
import itertools
import json
import random
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.errors import TrainingError
from evoseek.questions.outcomes import Rejection
from evoseek.rollout.environments import passage_task
from evoseek.rollout.record import TrajectoryWriter, read_trajectories
from evoseek.selfplay.question_log import QuestionLog, best_questions
from evoseek.selfplay.tasks import TaskSource
from evoseek.systems.dr_zero import DrZero, PhaseSettings, ScheduledStep
from evoseek.systems.search_r1 import SearchR1
from evoseek.types import (
    Episode,
    Invalid,
    Passage,
    ProposerTask,
    Question,
    Scored,
    StopReason,
    Trajectory,
    TrajectoryGroup,
)

DOWN = Invalid(StopReason.TOOL_FAILED, "the engine is down")


def phases(iterations, proposer, writing, solver):
    steps = {"proposer_steps": proposer, "writing_steps": writing, "solver_steps": solver}
    return PhaseSettings(iterations=iterations, passages_per_writing_step=3, **steps)


PHASES = phases(2, 2, 2, 3)
counts = st.integers(1, 4)


@given(counts, st.integers(0, 4), counts, counts)
def test_the_schedule_is_the_phases_one_after_the_other(iterations, proposer, writing, solver):
    schedule = phases(iterations, proposer, writing, solver)
    own = {"propose": proposer, "write": writing, "solve": solver}
    expected = [
        ScheduledStep(iteration, phase, number)
        for iteration in range(1, iterations + 1)
        for phase, steps in own.items()
        for number in range(1, steps + 1)
    ]
    assert schedule.steps == len(expected)
    assert [schedule.place(step) for step in range(1, schedule.steps + 1)] == expected


def test_the_last_step_of_a_phase_is_known_at_any_step():
    """Two of proposing, two of writing, three of solving, twice."""
    assert [PHASES.last("propose", step) for step in range(15)] == [0, 1, *[2] * 6, 8, *[9] * 6]
    assert [PHASES.last("solve", step) for step in range(15)] == [*[0] * 5, 5, 6, *[7] * 5, 12, 13, 14]


def make_task(id, passage, requested):
    return passage_task(id, Passage(passage, passage, "", passage), requested)


def source(purpose, copies=1):
    return TaskSource([f"p{n}" for n in range(40)], make_task, (2, 1), purpose, copies)


class Updates:
    def __init__(self):
        self.groups = {}

    def __call__(self, step, groups):
        self.groups[step] = groups
        return {"loss": 0.25}


class Attempts:
    """Rollouts of a solver: both attempts at each question are right."""

    roller, trajectories = SimpleNamespace(seed=0), TrajectoryWriter(None, str)

    def __init__(self):
        self.asked = {}

    async def __call__(self, questions, step):
        self.asked[step] = questions
        return [self._group(question, f"step-{step:06d}/{question.id}") for question in questions]

    def _group(self, question, key):
        answers = tuple(
            Trajectory(f"{key}/{n}", question, "solver", (), (), (), StopReason.ANSWERED, "meri") for n in range(2)
        )
        return TrajectoryGroup(key, answers, (Scored(1.0), Scored(1.0)))


@pytest.fixture
def dr_zero(tmp_path, played):
    """`dr_zero(says, ...)`: a system whose doubles keep what came; with `events` in order."""

    def make(says=lambda task: (f"who is {task.text} ?", 1.0), own=PHASES, **options):
        events = []
        play, writing = played(says), played(options.pop("writes", says))
        system = DrZero(
            phases=own,
            play=play,
            writing=writing,
            tasks=source("training"),
            written_tasks=source("writing", copies=options.pop("copies", 2)),
            solving=SearchR1([], Attempts(), Updates(), lambda step: events.append(("solver", step)), 3),
            proposer_update=Updates(),
            publish_proposer=lambda step: events.append(("proposer", step)),
            restart_solver=options.pop("restart", lambda: events.append("restart")),
            questions=QuestionLog(tmp_path / "questions.jsonl"),
            trajectories=TrajectoryWriter(tmp_path / "trajectories.jsonl", str),
            proposals_per_step=4,
            **options,
        )
        return system, events

    return make


def steps(system, numbers):
    return [asyncio.run(system.step(number)) for number in numbers]


@pytest.mark.parametrize(("failing", "kept"), [(4, 0), (3, 4), (1, 4)])
def test_trap_a_proposers_step_counts_the_failures_of_both_roles(dr_zero, failing, kept):
    """Of four proposals so many fail; each of the others has two attempts of the solver that do not. Three of the six
    attempts of both roles are not surely more than a fifth, though three of four proposals are."""
    says = itertools.chain([DOWN] * failing, itertools.repeat(("who is it ?", 1.0)))
    system, _ = dr_zero(lambda task: next(says))
    system.solving = replace(system.solving, max_invalid=0.2)
    (report,) = steps(system, [1])
    assert report.num_rollouts == 4 + 2 * (4 - failing)
    assert report.has_too_many_failures(0.2) is not bool(kept)
    assert sum(len(group.trajectories) for group in system.proposer_update.groups[1]) == kept


def test_the_proposer_is_trained_then_it_writes_then_the_solver_is_trained(dr_zero):
    """Two iterations of two, two and three steps. Every phase of the solver begins with a fresh optimizer."""
    system, events = dr_zero()
    reports = steps(system, range(1, 15))
    assert events == [
        *[("proposer", 1), ("proposer", 2), "restart", ("solver", 5), ("solver", 6), ("solver", 7)],
        *[("proposer", 8), ("proposer", 9), "restart", ("solver", 12), ("solver", 13), ("solver", 14)],
    ]
    assert [key for key, _, solve in system.play.calls if solve] == [f"step-{n:06d}" for n in (1, 2, 8, 9)]
    assert [(key, solve) for key, _, solve in system.writing.calls] == [
        (f"step-{n:06d}", False) for n in (3, 4, 10, 11)
    ]
    assert list(system.proposer_update.groups) == [1, 2, 8, 9]
    assert list(system.solving.update.groups) == [5, 6, 7, 12, 13, 14]
    assert [report.metrics["selfplay/iteration"] for report in reports] == [1.0] * 7 + [2.0] * 7
    assert reports[0].metrics["proposer/loss"] == reports[4].metrics["solver/loss"] == 0.25
    assert reports[2].metrics["selfplay/written"] == 3.0
    for report in reports:
        assert all(seconds >= 0 for name, seconds in report.timings.items() if name.endswith("seconds"))


def test_the_solver_learns_from_the_questions_of_its_own_iteration(dr_zero):
    system, _ = dr_zero()
    steps(system, range(1, 15))
    for writing, solving in (((3, 4), (5, 6, 7)), ((10, 11), (12, 13, 14))):
        written = {question.id for question in system.questions.read(*writing)}
        asked = [group.trajectories[0].question.id for step in solving for group in system.solving.update.groups[step]]
        assert len(written) == 6
        assert set(asked) == written
        assert len(asked) == 9
    (counts,) = system.solving.passes.state().values()
    assert set(counts) == written  # of the last iteration alone


class TestTrap13TheQuestionOrderFollowsThePhase:
    """By the run's step, a phase of the solver would begin within a pass over the questions: those at its beginning
    are never trained on, and others come twice."""

    @pytest.mark.parametrize("per_step", [1, 2, 3, 4, 5, 6])
    def test_every_written_question_is_asked_once_before_any_is_asked_again(self, dr_zero, per_step):
        """Six are written in each of two iterations, whose solver phases begin at steps 5 and 17."""
        system, _ = dr_zero(own=phases(2, 2, 2, 8))
        system.solving = replace(system.solving, questions_per_step=per_step)
        steps(system, range(1, 25))
        for writing, first in (((3, 4), 5), ((15, 16), 17)):
            written = {question.id for question in system.questions.read(*writing)}
            groups = [system.solving.update.groups[step] for step in range(first, first + 8)]
            asked = [group.trajectories[0].question.id for step in groups for group in step]
            assert len(written) == 6
            for start in range(0, len(asked) - 5, 6):
                assert set(asked[start : start + 6]) == written


def test_passages_are_fresh_over_the_steps_and_iterations(dr_zero):
    """Until all of them were met; what is written about is drawn apart from what is trained on."""
    system, _ = dr_zero(own=phases(3, 2, 2, 1))
    steps(system, range(1, 16))
    proposed = [task.text for _, tasks, _ in system.play.calls for task in tasks]
    written = [task.text for _, tasks, _ in system.writing.calls for task in tasks]
    assert len(proposed) == len(set(proposed)) == 3 * 2 * 4
    assert len(written) == 2 * len(set(written)) == 3 * 2 * 3 * 2
    assert proposed != written[: len(proposed)]


def test_a_step_does_not_depend_on_the_steps_before_it_in_this_process(dr_zero):
    """A resumed run has the log and what a checkpoint says of the questions asked."""
    system, _ = dr_zero()
    before = {}
    for step in range(1, 15):
        before[step] = json.loads(json.dumps(system.solving.passes.state()))
        steps(system, (step,))
    again, events = dr_zero()
    for step in (14, 6, 9):
        again.solving.passes.restore(before[step])
        steps(again, (step,))
    assert events == [("solver", 14), ("solver", 6), ("proposer", 9)]
    for step in (14, 6):
        asked = [[group.key for group in one.solving.update.groups[step]] for one in (system, again)]
        assert asked[0] == asked[1]
    calls = [[tasks for key, tasks, _ in one.play.calls if key == "step-000009"] for one in (system, again)]
    assert calls[0] == calls[1]


def test_the_solver_may_keep_its_optimizer(dr_zero):
    system, events = dr_zero(restart=None)
    steps(system, range(3, 6))
    assert events == [("solver", 5)]


def test_the_proposer_may_have_a_fresh_optimizer_in_every_iteration_too(dr_zero):
    system, events = dr_zero()
    system.restart_proposer = lambda: events.append("restart the proposer")
    steps(system, range(1, 15))
    proposer = [["restart the proposer", ("proposer", first), ("proposer", first + 1)] for first in (1, 8)]
    solver = [["restart", *(("solver", step) for step in range(first, first + 3))] for first in (5, 12)]
    assert events == [*proposer[0], *solver[0], *proposer[1], *solver[1]]


def test_a_frozen_proposer_only_measures(dr_zero):
    system, events = dr_zero(frozen_after=0)
    (report,) = steps(system, [1])
    assert events == []
    assert report.metrics["proposer/reward"] == 1.0
    assert "proposer/loss" not in report.metrics


def test_after_so_many_iterations_the_proposer_only_measures(dr_zero):
    """Two iterations of two, two and three steps; the proposer learns in the first, the solver in both."""
    system, events = dr_zero(frozen_after=1)
    reports = steps(system, range(1, 15))
    solver = [[("solver", step) for step in range(first, first + 3)] for first in (5, 12)]
    assert events == [("proposer", 1), ("proposer", 2), "restart", *solver[0], "restart", *solver[1]]
    assert list(system.proposer_update.groups) == [1, 2]
    assert [key for key, _, solve in system.play.calls if solve] == [f"step-{n:06d}" for n in (1, 2, 8, 9)]
    assert ["proposer/loss" in reports[step - 1].metrics for step in (1, 2, 8, 9)] == [True, True, False, False]
    assert {reports[step - 1].metrics["proposer/reward"] for step in (1, 2, 8, 9)} == {1.0}


def test_proposals_are_grouped_by_requested_hops_or_by_passage(dr_zero):
    system, _ = dr_zero()
    steps(system, [1])
    assert {group.key for group in system.proposer_update.groups[1]} == {"requested-1", "requested-2"}
    nested, _ = dr_zero(group_by="task")
    steps(nested, [1])
    assert [group.key for group in nested.proposer_update.groups[1]] == [f"task-000001-{n:04d}" for n in range(4)]


def test_proposals_without_requested_hops_are_one_group(dr_zero):
    system, _ = dr_zero()
    system.tasks = replace(system.tasks, ratio=())
    (report,) = steps(system, [1])
    (group,) = system.proposer_update.groups[1]
    assert (group.key, len(group.trajectories)) == ("requested-0", 4)
    assert not [name for name in report.metrics if "requested" in name]


def test_every_rollout_is_recorded_once(dr_zero, tmp_path):
    system, _ = dr_zero()
    steps(system, (1, 3))
    ids = [record.trajectory.id for record in read_trajectories(tmp_path / "trajectories.jsonl")]
    assert len(ids) == len(set(ids)) == 4 + 4 * 2 + 6


def test_readings_that_verified_are_recorded_and_not_trained_on(dr_zero, tmp_path):
    system, _ = dr_zero()
    system.play.checked = system.writing.checked = True
    reports = steps(system, (1, 3))
    roles = [record.trajectory.role for record in read_trajectories(tmp_path / "trajectories.jsonl")]
    assert roles.count("reader") == 4 + 6
    assert [report.num_rollouts for report in reports] == [4 + 4 * 2, 6]
    assert {t.role for group in system.proposer_update.groups[1] for t in group.trajectories} == {"proposer"}


def test_failures_of_both_roles_are_reported(dr_zero):
    says = itertools.cycle([DOWN, ("who is it ?", 1.0), Rejection.NO_QUESTION, DOWN])
    system, _ = dr_zero(lambda _: next(says))
    (report,) = steps(system, [1])
    assert report.failures == (DOWN, DOWN)
    assert report.num_rollouts == 4 + 2


def test_an_iteration_without_a_question_ends_with_the_reasons_and_a_remedy(dr_zero):
    """Six proposals a step; in the last step four are too short, one has no question, and one fails."""
    said = [*[Rejection.TOO_LONG] * 6, *[Rejection.TOO_SHORT] * 4, Rejection.NO_QUESTION, DOWN]
    says = iter(said)
    system, _ = dr_zero(writes=lambda _: next(says))
    steps(system, range(1, 4))
    reasons = (
        r"no valid question in iteration 1.*the 6 proposals .*: too_short \(4\), no_question \(1\)\. Begin a new run"
    )
    with pytest.raises(TrainingError, match=reasons):
        steps(system, [4])


def test_questions_of_one_writing_step_are_enough(dr_zero):
    says = itertools.chain([("who is it ?", 1.0)] * 6, itertools.repeat(Rejection.TOO_SHORT))
    system, _ = dr_zero(writes=lambda _: next(says))
    steps(system, range(3, 6))
    assert len(system.solving.update.groups[5]) == 1


@pytest.mark.parametrize("first", [3, 4])
def test_an_outage_that_begins_while_questions_are_written_ends_the_run_with_its_cause(dr_zero, first):
    """The engine is down after the proposer's steps, or after the first of the writing steps: nothing is trained on."""
    down = False
    system, events = dr_zero(writes=lambda task: DOWN if down else (f"who is {task.text} ?", 1.0))
    steps(system, range(1, first))
    down = True
    cause = rf"stopped at step {first}.*tried 3 times.*6 of 6 .*tool_failed \(6 proposals\): the engine is down\."
    with pytest.raises(TrainingError, match=cause):
        steps(system, [first])
    assert [question.metadata["step"] for question in system.questions.read(1, 99)] == [3] * (3 * (first - 3))
    assert events == [("proposer", 1), ("proposer", 2)]


def test_a_short_outage_costs_a_writing_step_no_question(dr_zero, tmp_path):
    """Two of six fail, which is more than a fifth: all six are written anew, with other luck."""
    says = itertools.chain([DOWN] * 2, itertools.repeat(("who is it ?", 1.0)))
    system, _ = dr_zero(writes=lambda task: (f"who is {task.text} ?", 1.0) if (said := next(says)) != DOWN else said)
    (report,) = steps(system, [3])
    assert [key for key, _, _ in system.writing.calls] == ["step-000003", "step-000003/again-1"]
    assert (report.metrics["selfplay/written"], report.failures, report.num_rollouts) == (3.0, (), 6)
    ids = [record.trajectory.id for record in read_trajectories(tmp_path / "trajectories.jsonl")]
    assert len(ids) == len(set(ids)) == 6 + 6


def test_a_fifth_of_the_proposals_may_fail(dr_zero):
    says = itertools.chain([DOWN], itertools.repeat(("who is it ?", 1.0)))
    system, _ = dr_zero(writes=lambda _: next(says))
    (report,) = steps(system, [3])
    assert len(system.writing.calls) == 1
    assert report.failures == (DOWN,)


def test_fewer_questions_than_a_step_asks_for_are_all_asked(dr_zero):
    says = itertools.chain(
        [("who is the first ?", 1.0), ("who is the second ?", 1.0)], itertools.repeat(Rejection.TOO_SHORT)
    )
    system, _ = dr_zero(copies=1, writes=lambda _: next(says))
    steps(system, range(1, 6))
    assert len(system.solving.update.groups[5]) == 2


def test_questions_are_written_without_those_of_earlier_steps_of_the_iteration(dr_zero):
    """Every step writes the same three; the next iteration may write them again."""
    names = itertools.cycle(("who is the first ?", "who is the second ?", "who is the third ?"))
    system, _ = dr_zero(copies=1, writes=lambda _: (next(names), 1.0))
    reports = steps(system, (3, 4, 10))
    assert [report.metrics["selfplay/written"] for report in reports] == [3.0, 0.0, 3.0]
    assert [question.metadata["step"] for question in system.questions.read(1, 99)] == [3] * 3 + [10] * 3


def written(task, text, outcome):
    proposal = Trajectory(
        "p", Question("t", "", (), task=ProposerTask(1, id=task)), "proposer", (), (), (), StopReason.ANSWERED
    )
    return Episode(proposal, outcome, None if text is None else Question(f"{task}/{text}", text, ("meri",)))


def test_of_every_passage_the_best_valid_question_is_kept():
    episodes = [
        written("a", "who is good ?", Scored(0.3)),
        written("a", "who is best ?", Scored(0.5)),
        written("a", "who is as good ?", Scored(0.5)),  # the first of equals stays
        written("b", None, Scored(0.9)),  # rejected
        written("b", "who is alone ?", Scored(0.0)),
        written("c", "who is broken ?", DOWN),  # failed
        written("d", None, DOWN),
        written("e", "Who is THE best?", Scored(0.9)),  # a duplicate, in normal form
        written("f", "who is old ?", Scored(0.9)),  # a duplicate of an earlier step's
    ]
    earlier = [Question("old", "who is old ?", ("meri",))]
    for likeness in (1.0, 0.0):
        kept = best_questions(episodes, earlier, likeness)
        assert [question.text for question in kept] == ["who is best ?", "who is alone ?"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0.0, 0.25, 0.5, None])), max_size=12), st.integers())
def test_what_is_kept_is_never_worse_than_what_is_dropped(pairs, seed):
    episodes = [
        written(task, f"who is number {n} ?", DOWN if reward is None else Scored(reward))
        for n, (task, reward) in enumerate(pairs)
    ]
    random.Random(seed).shuffle(episodes)
    best = {}
    for task, reward in pairs:
        if reward is not None:
            best[task] = max(best.get(task, 0.0), reward)
    rewards = {episode.question.id: episode.outcome for episode in episodes}
    kept = {question.id[0]: rewards[question.id].reward for question in best_questions(episodes, [], 1.0)}
    assert kept == best
