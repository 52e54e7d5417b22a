"""Rollbacks: when a run has collapsed, by numbers worked out by hand, what the loop does then, and which weights."""

import asyncio
import json
import random
from statistics import fmean

import pytest

from evoseek.checkpoints import latest_checkpoint, list_checkpoints
from evoseek.report.alarms import AlarmedMetrics
from evoseek.report.metrics import JsonlMetrics, counted, read_metrics
from evoseek.runs import RunDirectory
from evoseek.training.loop import TrainingLoop
from evoseek.training.rollbacks import Rollback, Rollbacks, Row
from evoseek.training.rollout_metrics import StepReport
from evoseek.training.run_state import RunState
from evoseek.training.settings import StageSettings
from evoseek.training.stages import Began, Stages
from evoseek.types import Invalid, StopReason

GOOD, BAD = (0.5, 0.7, 0.6, 0.5, 0.7), (0.2, 0.3, 0.3, 0.3, 0.3)  # means .6 and .28
QUESTIONS = 20  # a step


def after(*rewards, no_signal=1.0, limit=1, every=1, history=()):
    found = Rollbacks(limit, every, list(history), questions=QUESTIONS)
    for step, reward in enumerate(rewards, 1):
        shares = no_signal if isinstance(no_signal, tuple) else (no_signal,) * len(rewards)
        found.observe(step, {"answer_reward": reward, "reward": -1.0, "frac_reward_zero_std": shares[step - 1]})
    return found


def test_what_shaping_tells_apart_in_a_group_is_no_better_answer():
    """Half of the rollouts of every group answer, all wrongly: a penalty for the others makes rewards differ."""
    told = {"frac_reward_zero_std": 0.0, "frac_answer_reward_zero_std": 1.0}
    found = Rollbacks(1, questions=QUESTIONS)
    for step, reward in enumerate((*GOOD, *BAD), 1):
        found.observe(step, {"answer_reward": reward, **told})
    assert found.collapsed() is not None


def test_less_than_half_of_the_best_five_steps_and_no_signal_is_a_collapse():
    found = after(*GOOD, *BAD)
    assert found.collapsed() == (
        "The mean reward of answers over steps 6 to 10 is 0.280, less than half of the 0.600 over steps 1 to 5, and "
        "in nearly no group is one answer better than another."
    )
    assert found.good == 0
    assert after(0.1, *GOOD, *BAD).good == 1
    assert "over steps 2 to 6, and" in after(0.1, *GOOD, *BAD).collapsed()


@pytest.mark.parametrize(
    ("rewards", "is_collapse"),
    [
        ((*GOOD, 0.3, 0.3, 0.3, 0.3, 0.3), False),  # exactly half
        ((*GOOD, 0.29, 0.29, 0.29, 0.29, 0.29), True),
        ((*GOOD, 0.2, 0.2, 0.2, 0.2), False),  # too few steps
        ((0.1,) * 5 + (1.0,) * 5 + (0.0,) * 3, False),  # the best would share steps with the last
        ((0.0,) * 10, False),
        ((-0.10,) * 5 + (-0.21,) * 5, False),  # half of a negative one is more
    ],
)
def test_rewards_of_a_collapse(rewards, is_collapse):
    assert (after(*rewards).collapsed() is not None) is is_collapse


@pytest.mark.parametrize(
    ("last", "is_collapse"), [((0.9,) * 5, True), ((1.0, 1.0, 1.0, 1.0, 0.5), True), ((0.89,) * 5, False)]
)
def test_the_mean_share_without_a_signal_over_the_last_five_steps(last, is_collapse):
    assert (after(*GOOD, *BAD, no_signal=(0.0,) * 5 + last).collapsed() is not None) is is_collapse


def test_chance_explains_at_most_twice_the_standard_error_by_the_variance_within_all_windows():
    """Of 1, x, x, x, x and five zeros: (1 - x)^2 / 5, and x^2 times .2, .3, .3, .2 and 0."""
    for x, is_sure in ((0.0, False), (0.03, False), (0.04, True), (0.1, True)):
        within = ((1 - x) ** 2 / 5 + x**2) / 6
        assert ((1 + 4 * x) / 5 > 2 * (2 * within / 5) ** 0.5) is is_sure
        assert (after(1, x, x, x, x, 0, 0, 0, 0, 0).collapsed() is not None) is is_sure


@pytest.mark.parametrize(
    ("questions", "height", "is_sure"),
    [(4, 0.38, False), (4, 0.40, True), (6, 0.27, False), (6, 0.28, True), (20, 0.09, False), (20, 0.10, True)],
)
def test_the_fewer_questions_a_step_has_the_higher_a_fall_to_nothing_has_to_begin(questions, height, is_sure):
    """By hand: 3.1^2 x 2 m (1 - m) / n < h^2 for m = h / 2 and n = 5 x questions, so h > 9.61 / (n + 4.805)."""
    assert (height > 9.61 / (5 * questions + 4.805)) is is_sure
    found = Rollbacks(1, questions=questions)
    for step in range(1, 11):
        found.observe(step, {"answer_reward": height * (step <= 5), "frac_answer_reward_zero_std": 1.0})
    assert (found.collapsed() is not None) is is_sure


@pytest.mark.parametrize("questions", [4, 6, 20])
def test_trap_a_policy_that_stays_as_it_is_is_not_rolled_back_whatever_its_share_of_right_answers(questions):
    """Half of the variance is between questions, as in `bench/guards.py --simulate`, which makes more runs."""
    rng, rolled_back = random.Random(questions), 0
    shares = (0.03, 0.05, 0.1, 0.2)
    for right in shares * 15:
        found = Rollbacks(1, questions=questions)
        for step in range(1, 61):
            chances = [rng.betavariate(right, 1 - right) for _ in range(questions)]
            rewards = [sum(rng.random() < chance for _ in range(8)) / 8 for chance in chances]
            flat = fmean(reward in (0.0, 1.0) for reward in rewards)
            found.observe(step, {"answer_reward": fmean(rewards), "frac_answer_reward_zero_std": flat})
            if found.collapsed():
                rolled_back += 1
                break
    assert rolled_back <= 1  # of 60


def test_none_is_left():
    assert after(*GOOD, *BAD, limit=0).collapsed() is None
    used = after(*GOOD, *BAD, history=[Rollback(3, 0)])
    assert (used.collapsed(), used.left, used.needed) == (None, 0, [])
    assert after(*GOOD, *BAD, limit=2, history=[Rollback(3, 0)]).collapsed() is not None


def test_kept_are_the_weights_before_the_best_steps_and_before_those_that_may_become_the_best():
    assert after().needed == []
    assert after(*GOOD, limit=0).needed == []
    assert after(*GOOD[:4]).needed == [0, 1, 2, 3]
    assert after(*GOOD, *BAD).needed == [0, 5, 6, 7, 8, 9]
    assert after(*(step / 100 for step in range(20))).needed == [*range(10, 20)]


def test_what_counts_begins_anew_and_each_halves_the_rate():
    found = after(*GOOD, *BAD, limit=3)
    assert found.rate_factor == 1
    found.count(10, 0)
    assert (found.history, found.rows, found.rate_factor) == ([Rollback(10, 0)], [], 0.5)
    assert found.collapsed() is None
    again = Rollbacks.of(3, 1, QUESTIONS, json.loads(json.dumps({"rollbacks": found.state()})))
    assert again == found
    again.count(30, 10)
    assert again.rate_factor == 0.25


def test_weights_are_taken_from_regular_checkpoints_and_from_those_of_rollbacks():
    found = Rollbacks(1, 10, [Rollback(13, 0)])
    assert [step for step in range(25) if found.is_source(step)] == [0, 10, 13, 20]


def test_rows_since_the_last_rollback_and_of_the_current_stage_are_restored():
    rows = [{"step": step, "answer_reward": step / 10, "frac_reward_zero_std": 0.5} for step in range(5)]
    rows.append({"step": 5, "answer_reward": None, "frac_reward_zero_std": 0.5})

    def restored(*history, stages=None):
        found = Rollbacks(1, 1, list(history), questions=QUESTIONS)
        found.restore_rows(rows, stages)
        return [row.step for row in found.rows]

    assert restored(Rollback(1, 0), Rollback(2, 0)) == [3, 4]
    assert restored(Rollback(2, 0), stages=Stages((), [Began("a", 1, ""), Began("b", 4, "")])) == [4]
    assert restored() == [1, 2, 3, 4]


def test_steps_without_a_reward_or_without_groups_are_passed_over():
    found, share = Rollbacks(1, questions=QUESTIONS), {"frac_reward_zero_std": 0.5}
    found.observe(0, {"answer_reward": 1.0, **share})
    found.observe(1, {"answer_reward": 1.0, **share})
    found.observe(2, {"answer_reward": float("nan"), **share})
    found.observe(3, {"reward": 1.0, **share})
    found.observe(4, {"answer_reward": 1.0})
    assert found.rows == [Row(1, 1.0, 0.5)]


class Recorder:
    """A system, checkpoints and sinks in one, with these rewards; a rollback goes to step `to`."""

    def __init__(self, rewards, rollbacks, to=3, failing=()):
        self.rewards, self.rollbacks, self.to, self.failing = rewards, rollbacks, to, failing
        self.events, self.said = [], []

    async def step(self, step):
        failures = (Invalid(StopReason.TOOL_FAILED, "down"),) * (10 if step in self.failing else 0)
        metrics = {"answer_reward": self.rewards[step - 1], "frac_reward_zero_std": 1.0}
        return StepReport(metrics, {}, failures, 10)

    def save(self, step):
        self.events.append(("save", step))

    def roll_back(self, step):
        self.events.append(("roll back", step))
        if self.to is not None:
            self.rollbacks.count(step, self.to)
        return self.to

    def write(self, step, metrics):
        pass

    def run(self, **options):
        options = {"start": 0, "steps": 12, "checkpoint_every": 5, "metrics": self} | options
        loop = TrainingLoop(self, self, timings=self, rollbacks=self.rollbacks, notify=self.said.append, **options)
        return asyncio.run(loop.run()), loop.has_turned


def test_the_loop_ends_with_a_collapse_whose_checkpoint_takes_the_place_of_its_own():
    recorder = Recorder((*GOOD, *BAD, 0, 0), Rollbacks(1, questions=QUESTIONS))
    assert recorder.run() == (10, True)
    assert recorder.events == [("save", 0), ("save", 5), ("roll back", 10)]
    assert recorder.said == [
        "Step 10: The mean reward of answers over steps 6 to 10 is 0.280, less than half of the 0.600 over steps 1 to "
        "5, and in nearly no group is one answer better than another. The weights are again those of step 3, and the "
        "learning rate is halved (run.rollbacks: 0 left)."
    ]


def test_where_no_checkpoint_is_left_it_goes_on_and_says_so():
    recorder = Recorder((*GOOD, *BAD, 0, 0), Rollbacks(1, questions=QUESTIONS), to=None)
    assert recorder.run() == (12, False)
    assert recorder.events == [
        *[("save", 0), ("save", 5), ("roll back", 10), ("save", 10), ("roll back", 11)],
        *[("roll back", 12), ("save", 12)],
    ]
    assert "No earlier checkpoint is left to take its weights from, so training goes on as it is." in recorder.said[0]


def test_without_rollbacks_it_goes_on_and_saves_nothing_before_its_first_step():
    recorder = Recorder((*GOOD, *BAD, 0, 0), Rollbacks(0))
    assert recorder.run() == (12, False)
    assert recorder.events == [("save", 5), ("save", 10), ("save", 12)]


def test_a_step_that_failed_is_no_reason():
    recorder = Recorder((*GOOD, *BAD, 0, 0), Rollbacks(1, questions=QUESTIONS), failing=(10,))
    assert recorder.run() == (11, True)
    assert recorder.events == [("save", 0), ("save", 5), ("roll back", 11)]


def test_trap_a_step_that_failed_is_in_no_mean_also_after_a_resume(tmp_path):
    """Nothing was trained on, and what is left of it is biased: neither rollbacks nor stages nor alarms see its row."""
    stages = Stages((StageSettings(name="a", until="answer_reward > 0.3", over=3), StageSettings(name="b")), [])
    stages.history.append(Began("a", 1, ""))
    recorder = Recorder((0.9, 0.9, 0.1, 0.1), Rollbacks(0), failing=(1, 2))
    sink, said = JsonlMetrics(tmp_path / "metrics.jsonl"), []
    assert recorder.run(stages=stages, steps=4, metrics=AlarmedMetrics(sink, said.append)) == (4, False)
    assert [row["answer_reward"] for row in stages.rows] == [0.1, 0.1]
    assert [row.step for row in recorder.rollbacks.rows] == [3, 4]
    rows = read_metrics(sink.path)
    assert [row.get("rollout/too_many_invalid") for row in rows] == [1.0, 1.0, None, None]
    assert said == []  # no alarm: only two of its steps count
    again = Stages(stages.stages, [Began("a", 1, "")])
    again.restore_rows(counted(rows))
    assert [row["step"] for row in again.rows] == [3, 4]


def test_rows_of_weights_that_were_given_up_do_not_count():
    rows = [{"step": step} for step in range(12)]
    given_up = counted(rows, [Rollback(5, 2), Rollback(10, 8)])
    assert [row["step"] for row in given_up] == [0, 1, 2, 6, 7, 8, 11]


def test_a_stage_does_not_end_with_the_same_step():
    stages = Stages((StageSettings(name="a", steps=10), StageSettings(name="b")), [Began("a", 1, "")])
    recorder = Recorder((*GOOD, *BAD, 0, 0), Rollbacks(1, questions=QUESTIONS))
    assert recorder.run(stages=stages) == (10, True)
    assert [began.name for began in stages.history] == ["a"]


def test_all_processes_roll_back_together():
    recorder = Recorder((*GOOD, *GOOD, 0, 0), Rollbacks(1, questions=QUESTIONS))
    assert recorder.run(agree=lambda wish: len(recorder.rollbacks.rows) == 7) == (7, True)
    assert recorder.events == [("save", 0), ("save", 5), ("roll back", 7)]


@pytest.mark.parametrize(
    ("rewards", "every", "expected"),
    [
        ((0.1,) * 16 + (0.8,) * 6 + (0.0,) * 5, 10, 10),  # after step 25, and the best of 20 are the last five
        ((0.1,) * 16 + (0.8,) * 6 + (0.0,) * 5, 1, 15),
        ((0.1,) * 16 + (0.8,) * 6 + (0.0,) * 5, 4, 12),
        (tuple(step / 50 for step in range(40)) + (0.0,) * 6, 1, 33),  # after step 43, and the best of 38 are the last
        (tuple(step / 50 for step in range(40)) + (0.0,) * 6, 2, 32),
        (tuple(step / 50 for step in range(40)) + (0.0,) * 6, 10, 30),
    ],
)
@pytest.mark.parametrize("keep_last", [1, 2])
def test_the_newest_regular_checkpoint_before_the_best_steps_is_kept(tmp_path, rewards, every, expected, keep_last):
    """It is also what a run takes that was stopped on the way, though that has more checkpoints."""
    for name, stops in (("whole", ()), ("stopped", (2, 17, 18, 33))):
        rollbacks = Rollbacks(1, every, questions=QUESTIONS)
        state = RunState(RunDirectory(tmp_path / name), {}, keep_last, rollbacks=rollbacks)
        state.save(0)
        for step, reward in enumerate(rewards, 1):
            rollbacks.observe(step, {"answer_reward": reward, "frac_reward_zero_std": 1.0})
            if rollbacks.collapsed():
                assert state.roll_back(step) == expected
                break
            if step % every == 0 or step in stops:
                state.save(step)
        assert rollbacks.history == [Rollback(step, expected)]
        again = latest_checkpoint(tmp_path / name)
        assert (again.step, again.position["rollbacks"]) == (step, [{"step": step, "to": expected}])
        assert expected in [number for number, _ in list_checkpoints(tmp_path / name)]


def test_a_damaged_one_is_passed_over_and_none_may_be_left(tmp_path):
    state = RunState(RunDirectory(tmp_path), {}, 9, rollbacks=after(*(0.1,) * 6, *GOOD, *BAD, every=3))
    for step in (0, 3, 6, 9):
        state.save(step)
    (tmp_path / "checkpoints/step-000006/state.json").write_text("{")
    assert state.roll_back(16) == 3
    assert len(list_checkpoints(tmp_path)) == 5
    state.rollbacks.history.clear()
    state.rollbacks.rows = after(*GOOD, *BAD).rows
    (tmp_path / "checkpoints/step-000000/state.json").unlink()
    assert state.roll_back(20) is None
    assert (state.rollbacks.history, latest_checkpoint(tmp_path).step) == ([], 16)
