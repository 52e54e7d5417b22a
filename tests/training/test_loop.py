import asyncio
from time import perf_counter
from types import SimpleNamespace

import pytest
from tests.doubles.learners import learner_of
from torch import nn

from evoseek.assembly.settings import StageSettings
from evoseek.errors import RunError, SamplerError, TrainingError
from evoseek.learner.checkpoint import CheckpointPart
from evoseek.loss.clipped import ClippedLoss
from evoseek.storage.checkpoints import Checkpoint, latest_checkpoint
from evoseek.storage.runs import RunDirectory
from evoseek.training import loop as training
from evoseek.training.loop import RunState, TrainingLoop, cut_logs, log_positions
from evoseek.training.rollout_metrics import StepReport, checked_report
from evoseek.training.stages import Began, Stages
from evoseek.training.train import check_learnt
from evoseek.types import Invalid, StopReason


class Recorder:
    """A system, checkpoints and a sink in one; `invalid[step]` rollouts of ten fail."""

    def __init__(self, invalid=None):
        self.events, self.rows, self.invalid = [], {}, invalid or {}

    async def step(self, step):
        self.events.append(("step", step))
        failures = (Invalid(StopReason.TOOL_FAILED, "the engine is down"),) * self.invalid.get(step, 0)
        return StepReport({"reward": step / 10}, {"seconds": 1.0}, failures, 10)

    def save(self, step):
        self.events.append(("save", step))

    def write(self, step, metrics):
        self.rows[step] = dict(metrics)

    async def evaluate(self, step):
        self.events.append(("evaluate", step))
        return {"eval/reward": 0.5}


def run(recorder, **options):
    timings = Recorder()
    settings = {"start": 0, "steps": 5, "checkpoint_every": 2, "metrics": recorder, "timings": timings} | options
    loop = TrainingLoop(system=recorder, checkpoints=recorder, **settings)
    return asyncio.run(loop.run()), timings


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, "returned an object of the type NoneType"),
        ({"reward": 1.0}, "returned an object of the type dict"),
        (StepReport({"reward": "1.0"}, {}, (), 10), r"reported 'reward' = '1.0' \(str\)"),
        (StepReport({"reward": [1.0]}, {}, (), 10), "reported 'reward' = "),
        (StepReport({}, {"seconds": None}, (), 10), "reported 'seconds' = None"),
        (StepReport({3: 1.0}, {}, (), 10), "reported 3 = 1.0"),
        (StepReport({}, {}, ("down",), 10), "reported 1 failures of 10 rollouts"),
        (StepReport({}, {}, (Invalid(StopReason.TOOL_FAILED, ""),) * 3, 2), "reported 3 failures of 2 rollouts"),
    ],
)
def test_trap_what_a_systems_step_returns_is_checked_before_anything_is_written(given, words):
    recorder = Recorder()

    async def step(number):
        return given

    recorder.step = step
    with pytest.raises(TrainingError, match=f"The step of the system Recorder {words}"):
        run(recorder)
    assert (recorder.events, recorder.rows) == ([], {})


def test_a_number_that_is_not_finite_is_reported_all_the_same():
    report = StepReport({"reward": float("nan"), "n": 3}, {}, (), 0)
    assert checked_report("s", report) is report


@pytest.mark.parametrize("prefix", ["", "solver/"])
def test_trap_a_run_without_an_optimizer_step_says_so_at_its_end(prefix):
    def row(step, **skipped):
        return {"step": step, **{f"{prefix}learner/skipped_{what}": number for what, number in skipped.items()}}

    said = []
    check_learnt([row(0)], said.append)
    check_learnt([row(1, no_signal=1.0), row(2, no_signal=1.0) | {f"{prefix}loss": 0.5}], said.append)
    check_learnt([row(1, non_finite=1.0), row(2, non_finite=1.0) | {f"{prefix}loss": 0.5}], said.append)
    assert said == []
    check_learnt([row(1, no_signal=1.0, non_finite=0.0), row(2, no_signal=2.0, non_finite=0.0)], said.append)
    assert said == [
        "No optimizer step was made: the weights have not changed. 2 updates had no rollout with an advantage."
    ]
    with pytest.raises(TrainingError, match="In 2 updates the loss or its gradient was not finite"):
        check_learnt([row(1, non_finite=1.0), row(2, non_finite=2.0) | {f"{prefix}loss": None}], said.append)


def test_order_of_things():
    recorder = Recorder()
    last, timings = run(recorder, evaluate=recorder.evaluate, evaluate_every=3)
    assert last == 5
    assert recorder.events == [
        ("evaluate", 0),
        *[("step", 1), ("step", 2), ("save", 2), ("step", 3), ("evaluate", 3)],
        *[("step", 4), ("save", 4), ("step", 5), ("evaluate", 5), ("save", 5)],
    ]
    assert recorder.rows[3] == {"reward": 0.3, "eval/reward": 0.5}
    assert "step/seconds" in timings.rows[1]


def test_a_resumed_run_goes_on_where_it_was():
    recorder = Recorder()
    run(recorder, start=4, evaluate=recorder.evaluate)
    assert recorder.events == [("step", 5), ("evaluate", 5), ("save", 5)]


def test_a_finished_run_does_nothing():
    recorder = Recorder()
    assert run(recorder, start=5)[0] == 5
    assert recorder.events == []


def test_stopping_finishes_the_step_and_saves():
    recorder = Recorder()
    last, _ = run(recorder, should_stop=lambda: ("step", 3) in recorder.events)
    assert last == 3
    assert recorder.events[-1] == ("save", 3)


def test_too_many_invalid_rollouts_thrice_in_a_row_end_the_run_with_the_cause():
    recorder = Recorder({2: 6, 3: 10, 4: 7})
    with pytest.raises(TrainingError, match=r"step 4: 7 of 10 .* tool_failed \(7 rollouts\): the engine is down"):
        run(recorder)
    assert recorder.events == [("step", 1), ("step", 2), ("step", 3), ("step", 4)]
    assert 4 in recorder.rows


def test_a_bad_spell_that_ends_is_survived():
    assert run(Recorder({1: 6, 2: 10, 3: 2, 4: 7}))[0] == 5


def test_trap_a_step_with_too_many_invalid_rollouts_is_never_kept():
    """Neither when a checkpoint is due, nor when the run is stopped, nor as the end of a run."""
    due, stopped, last = Recorder({2: 6}), Recorder({3: 6}), Recorder({5: 6})
    run(due)
    assert [event for event in due.events if event[0] == "save"] == [("save", 4), ("save", 5)]
    said = []
    assert run(stopped, should_stop=lambda: ("step", 3) in stopped.events, notify=said.append)[0] == 3
    assert stopped.events[-1] == ("step", 3)
    assert said == ["Step 3 had too many invalid rollouts and is not kept: the run resumes from its last checkpoint."]
    with pytest.raises(TrainingError, match=r"step 5: 6 of 10 .* Consecutive .* too many: 1\..*resumes from the last"):
        run(last)
    assert last.events[-1] == ("step", 5)


def test_the_reward_of_a_step_with_too_many_invalid_rollouts_counts_for_no_stage():
    """Steps 1 and 3 have a mean of .2, steps 3 and 4 one of .35; step 2, which fails, would make it .25."""
    stages = Stages((StageSettings(name="a", until="reward > 0.22", over=2), StageSettings(name="b")), [])
    stages.history.append(Began("a", 1, ""))
    last, _ = run(Recorder({2: 9}), stages=stages)
    assert last == 4
    assert stages.history[-1] == Began("b", 5, "the mean of reward over 2 steps was 0.35 (until reward > 0.22)")


def test_progress_sees_every_row():
    recorder, seen = Recorder(), []
    run(recorder, evaluate=recorder.evaluate, progress=seen.append)
    assert [progress.step for progress in seen] == [0, 1, 2, 3, 4, 5]
    assert seen[1].metrics == recorder.rows[1]


def test_a_time_limit_counts_steps_and_saves():
    recorder = Recorder()
    last, _ = run(recorder, max_seconds=1e-9)
    assert last == 1
    assert recorder.events == [("step", 1), ("save", 1)]


def test_without_time_left_no_step_is_made():
    recorder = Recorder()
    assert run(recorder, max_seconds=0.0)[0] == 0
    assert recorder.events == []


def test_after_a_step_with_too_many_invalid_rollouts_it_waits_twice_as_long_each_time(monkeypatch):
    now, said = [0.0], []

    async def sleep(seconds):
        now[0] += seconds

    monkeypatch.setattr(training, "perf_counter", lambda: now[0])
    monkeypatch.setattr(training.asyncio, "sleep", sleep)
    run(Recorder({1: 6, 2: 10, 4: 7}), pause_s=8.0, notify=said.append)
    assert now[0] == pytest.approx(8 + 16 + 8)
    assert [text.rsplit(" begins in ")[1] for text in said] == ["8 s.", "16 s.", "8 s."]
    assert said[1].startswith(
        "Step 2: 10 of 10 rollouts were invalid. The most frequent reason is tool_failed (10 rollouts): the engine is "
        "down. Nothing was trained on the invalid ones."
    )


def test_a_run_that_ends_does_not_wait():
    said = []
    with pytest.raises(TrainingError):
        run(Recorder({5: 6}), pause_s=60.0, notify=said.append)
    assert run(Recorder({1: 6}), pause_s=60.0, notify=said.append, max_seconds=1e-9)[0] == 1
    assert (
        run(Recorder({1: 6}), pause_s=60.0, notify=said.append, should_stop=iter([False, True, True]).__next__)[0] == 1
    )
    assert not any("begins in" in text for text in said)


def test_a_wish_to_stop_ends_the_wait_at_once():
    started, wishes = perf_counter(), iter([False, False, False, True, True])
    recorder = Recorder({1: 6})
    assert run(recorder, pause_s=60.0, should_stop=wishes.__next__)[0] == 1
    assert perf_counter() - started < 30.0
    assert recorder.events == [("step", 1)]


def test_what_was_begun_of_later_steps_is_dropped_in_the_end_and_before_a_pause():
    async def drop():
        recorder.events.append(("drop",))

    recorder = Recorder({2: 6})
    run(recorder, steps=3, drop=drop)
    expected = [("step", 1), ("step", 2), ("drop",), ("step", 3), ("save", 3), ("drop",)]
    assert recorder.events == expected
    recorder = Recorder(dict.fromkeys((1, 2, 3), 6))
    with pytest.raises(TrainingError):
        run(recorder, drop=drop)
    assert recorder.events[-1] == ("drop",)


def test_a_probe_without_servers_is_no_error_in_a_step_whose_rollouts_fail():
    """The servers that the probe would ask are down: the run waits for them."""
    recorder, probed = Recorder({2: 10, 3: 10}), []

    async def probe(step):
        probed.append(step)
        if step in (2, 3):
            raise SamplerError("no server")
        return {"probed": 1.0}

    last, _ = run(recorder, probe=probe, probe_every=1)
    assert (last, probed) == (5, [0, 1, 2, 3, 4, 5])
    assert [step for step, row in recorder.rows.items() if "probed" in row] == [1, 4, 5]


@pytest.fixture
def run_directory(tmp_path):
    run_directory = RunDirectory(tmp_path)
    run_directory.metrics.write_text("one\n")
    run_directory.trajectories.write_text("a trajectory\n")
    return run_directory


def test_a_checkpoint_says_how_long_the_logs_are_and_what_those_hold_that_are_read(run_directory):
    assert log_positions(run_directory) == {
        "logs": {
            "metrics.jsonl": 4,
            "timings.jsonl": 0,
            "trajectories.jsonl": 13,
            "samples.jsonl": 0,
            "questions.jsonl": 0,
        },
        "digests": {"metrics.jsonl": "2c8b08da5ce60398e1f19af0e5dccc744df274b826abe585eaba68c525434806"},
    }


def test_logs_are_cut_back_to_a_checkpoint(run_directory):
    position = log_positions(run_directory)
    run_directory.metrics.write_text("one\ntwo\n")
    run_directory.trajectories.write_text("a trajectory\nhalf")
    run_directory.questions.write_text("a question\n")
    cut_logs(run_directory, position)
    assert run_directory.metrics.read_text() == "one\n"
    assert run_directory.trajectories.read_text() == "a trajectory\n"
    assert run_directory.questions.read_text() == ""
    assert not run_directory.timings.exists()


def test_a_run_without_a_checkpoint_begins_with_empty_logs(run_directory):
    cut_logs(run_directory, {})
    assert run_directory.metrics.read_text() == run_directory.trajectories.read_text() == ""


def test_trackers_take_all_steps_of_a_run_that_begins_anew(run_directory):
    taken = run_directory.path / "trackers" / "1-mine.step"
    taken.parent.mkdir()
    taken.write_text("8")
    (run_directory.path / "wandb_id.txt").write_text("ab")
    state = RunState(run_directory, {}, 1)
    assert state.resume(None) == 0
    assert not taken.exists()
    assert not (run_directory.path / "wandb_id.txt").exists()


def test_a_checkpoint_of_before_digests_were_recorded_is_known_by_lengths(run_directory):
    cut_logs(run_directory, {"logs": {"metrics.jsonl": 2, "trajectories.jsonl": 13}})
    assert run_directory.metrics.read_text() == "on"
    with pytest.raises(RunError, match=r"metrics\.jsonl holds 2 bytes, but it held 5 .*rows were removed"):
        cut_logs(run_directory, {"logs": {"metrics.jsonl": 5}})


def test_a_log_that_is_read_and_was_changed_is_refused(run_directory):
    position = log_positions(run_directory)
    run_directory.metrics.write_text("two\n")
    with pytest.raises(RunError, match=r"first 4 bytes of .*metrics\.jsonl"):
        cut_logs(run_directory, position)


@pytest.mark.parametrize("is_resumed", [True, False])
def test_a_folder_in_the_place_of_a_log_is_refused(run_directory, is_resumed):
    position = log_positions(run_directory) if is_resumed else {}
    run_directory.metrics.unlink()
    run_directory.metrics.mkdir()
    with pytest.raises(RunError, match=r"metrics\.jsonl is a folder, and a file .* is expected .*Restore the file"):
        cut_logs(run_directory, position)


def test_an_empty_log_that_was_removed_is_empty(run_directory):
    run_directory.questions.touch()
    position = log_positions(run_directory)
    run_directory.questions.unlink()
    cut_logs(run_directory, position)
    assert not run_directory.questions.exists()


class Kept:
    """A system with a state."""

    def __init__(self):
        self.restored = []

    def state(self):
        return {}

    def restore(self, state):
        self.restored.append(state)


@pytest.mark.parametrize(("position", "expected"), [({"system": {"rates": [1]}}, {"rates": [1]}), ({}, {})])
def test_what_a_system_keeps_is_restored(tmp_path, position, expected):
    kept = Kept()
    checkpoint = Checkpoint(tmp_path, 4, position, {}, "")
    assert RunState(RunDirectory(tmp_path), {}, 1, state=kept).resume(checkpoint) == 4
    assert kept.restored == [expected]


def test_the_learner_of_each_model_goes_on_where_it_was(tmp_path):
    def parts():
        forwards = {name: SimpleNamespace(model=nn.Linear(2, 1)) for name in ("policy", "critic")}
        learners = {name: learner_of(forward, loss=ClippedLoss()) for name, forward in forwards.items()}
        return {name: CheckpointPart(lambda path: path.mkdir(), learner) for name, learner in learners.items()}

    begun, resumed = parts(), parts()
    begun["policy"].learner.step, begun["critic"].learner.step = 3, 5
    RunState(RunDirectory(tmp_path), begun, 1).save(5)
    assert RunState(RunDirectory(tmp_path), resumed, 1).resume(latest_checkpoint(tmp_path)) == 5
    assert (resumed["policy"].learner.step, resumed["critic"].learner.step) == (3, 5)
