"""Search Self-play's step with scripted episodes: which groups are trained on, and what fills a batch."""

import asyncio
from dataclasses import replace

import pytest

from evoseek.questions.outcomes import Rejection
from evoseek.rollout.environments import answer_task
from evoseek.rollout.record import TrajectoryWriter, read_trajectories
from evoseek.selfplay.question_log import QuestionLog
from evoseek.selfplay.tasks import SearchChain, TaskSource
from evoseek.systems.ssp import SSP
from evoseek.types import Invalid, Scored, StopReason, ToolCall, ToolResult

DOWN = Invalid(StopReason.TOOL_FAILED, "the engine is down")


def make_task(id, lead, requested):
    return answer_task(id, lead.answer, requested)


class Updates:
    def __init__(self, log):
        self.groups, self.written, self.log = {}, {}, log

    def __call__(self, step, groups):
        self.groups[step] = groups
        self.written[step] = [question.id for question in self.log.read(step, step)]
        return {"solver/loss": 0.5}


@pytest.fixture
def ssp(tmp_path, played):
    """`ssp(valid, ...)`: of each step's proposals the first so many are valid; four answers a step."""

    def make(valid, copies=1, **options):
        def says(task):
            said = valid(task) if callable(valid) else int(task.id[-4:]) < valid
            return (f"who is it in {task.id} ?", 0.5) if said is True else said or Rejection.TOO_SHORT

        log, published = QuestionLog(tmp_path / "questions.jsonl"), []
        leads = [SearchChain(f"answer {n}", 1) for n in range(60)]
        system = SSP(
            play=played(says),
            tasks=TaskSource(leads, make_task, (1,), "0", copies),
            update=Updates(log),
            publish=published.append,
            questions=log,
            trajectories=TrajectoryWriter(tmp_path / "trajectories.jsonl", str),
            seed=0,
            proposals_per_step=4,
            **options,
        )
        return system, published

    return make


def steps(system, *numbers):
    return [asyncio.run(system.step(number)) for number in numbers]


def replayed(system, step):
    """The ids of the questions that a step solved again."""
    start = f"step-{step:06d}/replay-"
    return [question.id for key, question in system.play.solved if key.startswith(start)]


def test_both_roles_are_trained_in_one_update_and_then_the_policy_is_published(ssp):
    system, published = ssp(4)
    (report,) = steps(system, 3)
    groups = system.update.groups[3]
    assert {role: len(of_role) for role, of_role in groups.items()} == {"proposer": 4, "solver": 4}
    assert {t.role for group in groups["proposer"] for t in group.trajectories} == {"proposer"}
    assert [group.key for group in groups["solver"]] == [f"step-000003/000003-0000-{n:04d}" for n in range(4)]
    assert published == [3]
    assert report.num_rollouts == 4 + 4 * 2
    assert report.metrics["solver/loss"] == 0.5
    assert report.metrics["selfplay/valid_rate"] == 1.0
    assert report.metrics["selfplay/replayed"] == 0.0
    assert all(seconds >= 0 for seconds in report.timings.values())


def test_trap_neither_role_is_trained_where_too_many_attempts_of_both_failed(ssp):
    """All four proposals fail. With the attempts of a role alone the solver would be trained."""
    system, _ = ssp(lambda task: DOWN if len(system.play.calls) == 1 else True, max_invalid=0.2)
    system.play.solved.clear()
    failed, trained = steps(system, 1, 2)
    assert (failed.has_too_many_failures(0.2), system.update.groups[1]) == (True, {})
    assert (trained.has_too_many_failures(0.2), list(system.update.groups[2])) == (False, ["proposer", "solver"])
    assert (system.given, system.questions.read(1, 1)) == (4, [])


@pytest.mark.parametrize("role", ["proposer", "solver"])
def test_a_role_that_is_not_trained_plays_and_is_logged_but_the_update_does_not_see_it(ssp, tmp_path, role):
    system, _ = ssp(4, trained=(role,))
    steps(system, 1)
    assert list(system.update.groups[1]) == [role]
    roles = {record.trajectory.role for record in read_trajectories(tmp_path / "trajectories.jsonl")}
    assert roles == {"proposer", "solver"}


def test_readings_that_verified_are_recorded_and_not_trained_on(ssp, tmp_path):
    system, _ = ssp(4)
    system.play.checked = True
    (report,) = steps(system, 1)
    roles = [record.trajectory.role for record in read_trajectories(tmp_path / "trajectories.jsonl")]
    assert (roles.count("reader"), report.num_rollouts) == (4, 4 + 4 * 2)
    trained = system.update.groups[1].values()
    assert {t.role for groups in trained for group in groups for t in group.trajectories} == {"proposer", "solver"}


def test_each_proposal_is_a_group_of_its_own(ssp):
    system, _ = ssp(4)
    steps(system, 1)
    assert [group.key for group in system.update.groups[1]["proposer"]] == [
        f"task-000001-0000-{n:04d}" for n in range(4)
    ]


def test_questions_are_in_the_log_before_the_update_which_may_look_them_up(ssp):
    system, _ = ssp(2)
    steps(system, 1)
    assert system.update.written[1] == ["000001-0000-0000", "000001-0000-0001"]


@pytest.mark.parametrize(
    ("fill", "solved"), [("dummy", [1, 2]), ("resample", [1, 2]), ("replay", [1, 4]), ("replay-reset", [1, 4])]
)
def test_what_fills_a_batch(ssp, fill, solved):
    """One of the first step's four questions is valid, two of the second's. Nothing is there to replay at first."""

    def valid(task):
        return task.id in ("000001-0000-0001", "000002-0000-0000", "000002-0000-0002")

    system, _ = ssp(valid, fill=fill, resample_limit=1)
    reports = steps(system, 1, 2)
    assert [len(system.update.groups[step]["solver"]) for step in (1, 2)] == solved
    assert [len(system.update.groups[step]["proposer"]) for step in (1, 2)] == [4, 4]
    assert [report.metrics["selfplay/replayed"] for report in reports] == [0.0, solved[1] - 2.0]
    assert replayed(system, 2) == ["000001-0000-0001"] * (solved[1] - 2)


@pytest.mark.parametrize(("role", "times"), [("proposer", 0), ("solver", 3)])
def test_only_a_solver_that_learns_is_given_questions_again(ssp, role, times):
    system, _ = ssp(1, trained=(role,))
    steps(system, 1, 2)
    assert len(replayed(system, 2)) == times


def test_questions_that_are_replayed_more_than_once_are_rolled_out_anew_each_time(ssp, tmp_path):
    system, _ = ssp(lambda task: task.id == "000001-0000-0001")
    steps(system, 1, 2)
    assert replayed(system, 2) == ["000001-0000-0001"] * 4
    ids = [record.trajectory.id for record in read_trajectories(tmp_path / "trajectories.jsonl")]
    assert len(ids) == len(set(ids)) == (4 + 2) + (4 + 8)
    keys = [group.key for group in system.update.groups[2]["solver"]]
    assert keys == [f"step-000002/replay-{n:04d}/000001-0000-0001" for n in range(4)]


def test_replay_remembers_all_and_replay_reset_forgets_every_so_many_steps(ssp):
    """One valid question a step. With a reset every three, the steps 1, 4 and 7 have nothing to replay."""
    for fill, first in (("replay", lambda _: 1), ("replay-reset", lambda step: (step - 1) // 3 * 3 + 1)):
        system, _ = ssp(1, fill=fill, reset_every=3)
        system.questions.path.unlink(missing_ok=True)
        steps(system, *range(1, 9))
        for step in range(1, 9):
            known = {f"{earlier:06d}-0000-0000" for earlier in range(first(step), step)}
            again = replayed(system, step)
            assert set(again) <= known
            assert len(again) == (3 if known else 0)
            assert len(set(again)) == min(3, len(known))  # none twice before all were drawn


def test_questions_that_are_solved_again_while_the_engine_finds_nothing_are_not_learnt_from(ssp):
    """The engine loses its index after the first step: 3 questions are replayed, with 2 x 2 searches in vain each."""
    system, _ = ssp(1)
    steps(system, 1)
    solve, call = system.play.solve, ToolCall("search", {"query": "kalo"})

    async def in_vain(question, key):
        group = await solve(question, key)
        found_nothing = (ToolResult(call, "", queries=("kalo",)),) * 2
        return replace(group, trajectories=tuple(replace(t, tool_results=found_nothing) for t in group.trajectories))

    system.play.solve = in_vain
    (report,) = steps(system, 2)
    fresh, *replayed = system.update.groups[2]["solver"]
    assert len(replayed) == 3
    assert {outcome.reason for group in replayed for outcome in group.outcomes} == {StopReason.TOOL_FAILED}
    assert all(isinstance(outcome, Scored) for outcome in fresh.outcomes)
    assert len(report.failures) == 6


def test_every_step_draws_anew_from_what_there_is_to_replay(ssp):
    system, _ = ssp(lambda task: task.id < "000002")
    steps(system, *range(1, 6))
    assert len({tuple(replayed(system, step)) for step in range(2, 6)}) > 1


def test_a_resumed_run_replays_the_same(ssp):
    system, _ = ssp(1, fill="replay")
    steps(system, *range(1, 8))
    again, _ = ssp(1, fill="replay")
    log = again.questions.path
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:6]))
    steps(again, 7)
    assert replayed(again, 7) == replayed(system, 7)
    assert replayed(system, 7) != replayed(system, 6)


def test_resampling_draws_what_is_missing_until_the_batch_is_full(ssp):
    """Two of four, then one of two, then the last."""
    good = ("000001-0000-0000", "000001-0000-0002", "000001-0004-0001", "000001-0006-0000")
    system, _ = ssp(lambda task: task.id in good, fill="resample")
    steps(system, 1)
    assert [len(tasks) for _, tasks, _ in system.play.calls] == [4, 2, 1]
    assert len(system.update.groups[1]["solver"]) == 4
    assert len(system.update.groups[1]["proposer"]) == 7
    assert system.play.earlier == [0, 4, 6]
    answers = [task.text for _, tasks, _ in system.play.calls for task in tasks]
    assert len(set(answers)) == 7


@pytest.mark.parametrize("limit", [1, 2, 4])
@pytest.mark.parametrize("said", [Rejection.TOO_SHORT, DOWN])
def test_resampling_is_bound_and_the_next_step_begins_after_all_that_it_drew(ssp, limit, said):
    system, _ = ssp(lambda _: said, fill="resample", resample_limit=limit)
    steps(system, 1, 2)
    answers = [task.text for _, tasks, _ in system.play.calls for task in tasks]
    assert len(answers) == len(set(answers)) == 2 * 4 * limit
    ids = [task.id for _, tasks, _ in system.play.calls for task in tasks]
    assert len(set(ids)) == len(ids)
    again, _ = ssp(lambda _: said, fill="resample", resample_limit=limit)
    again.restore({"tasks": 4 * limit})  # as in a checkpoint after step 1
    steps(again, 2)
    assert again.state() == system.state() == {"tasks": 8 * limit}
    assert again.play.calls == system.play.calls[limit:]


def test_answers_that_a_step_did_not_need_are_given_in_the_next(ssp):
    """All four proposals of each step are valid, though it might have drawn sixteen."""
    system, _ = ssp(lambda _: True, fill="resample", resample_limit=4)
    steps(system, 1, 2)
    given = [task.text for _, tasks, _ in system.play.calls for task in tasks]
    assert given == [task.text for task in system.tasks(0, 8, "first")]


def test_with_several_proposals_an_answer_so_many_answers_are_drawn_that_the_batch_can_be_full(ssp):
    """Of 12 questions 7 are valid in the first round: 5 are missing, for which two answers are drawn."""
    system, _ = ssp(lambda task: task.id < "000001-0000-0002.1", copies=3, fill="resample", resample_limit=2)
    steps(system, 1)
    assert [len(tasks) for _, tasks, _ in system.play.calls] == [12, 6, 6]


def test_copies_of_an_answer_are_replayed_for_as_well(ssp):
    system, _ = ssp(lambda task: task.id.startswith("000001-0000-0000"), copies=3)
    steps(system, 1, 2)
    assert len(replayed(system, 1)) == 0
    assert sorted(replayed(system, 2)) == sorted([f"000001-0000-0000.{copy}" for copy in range(3)] * 4)


def test_failures_of_both_roles_are_reported(ssp):
    system, _ = ssp(lambda task: DOWN if task.id.endswith("3") else True)
    (report,) = steps(system, 1)
    assert report.failures == (DOWN,)
    assert report.num_rollouts == 4 + 3 * 2
