from types import SimpleNamespace

import pytest
from tests.doubles.learners import learner_of
from torch import nn

from evoseek.errors import RunError
from evoseek.learner.checkpoint import Part
from evoseek.loss.clipped import ClippedLoss
from evoseek.storage.checkpoints import Checkpoint, latest_checkpoint
from evoseek.storage.runs import RunDirectory
from evoseek.training.run_state import RunState, cut_logs, log_positions


@pytest.fixture
def run(tmp_path):
    run = RunDirectory(tmp_path)
    run.metrics.write_text("one\n")
    run.trajectories.write_text("a trajectory\n")
    return run


def test_a_checkpoint_says_how_long_the_logs_are_and_what_those_hold_that_are_read(run):
    assert log_positions(run) == {
        "logs": {
            "metrics.jsonl": 4,
            "timings.jsonl": 0,
            "trajectories.jsonl": 13,
            "samples.jsonl": 0,
            "questions.jsonl": 0,
        },
        "digests": {"metrics.jsonl": "2c8b08da5ce60398e1f19af0e5dccc744df274b826abe585eaba68c525434806"},
    }


def test_logs_are_cut_back_to_a_checkpoint(run):
    position = log_positions(run)
    run.metrics.write_text("one\ntwo\n")
    run.trajectories.write_text("a trajectory\nhalf")
    run.questions.write_text("a question\n")
    cut_logs(run, position)
    assert run.metrics.read_text() == "one\n"
    assert run.trajectories.read_text() == "a trajectory\n"
    assert run.questions.read_text() == ""
    assert not run.timings.exists()


def test_a_run_without_a_checkpoint_begins_with_empty_logs(run):
    cut_logs(run, {})
    assert run.metrics.read_text() == run.trajectories.read_text() == ""


def test_trackers_take_all_steps_of_a_run_that_begins_anew(run):
    taken = run.path / "trackers" / "1-mine.step"
    taken.parent.mkdir()
    taken.write_text("8")
    (run.path / "wandb_id.txt").write_text("ab")
    state = RunState(run, {}, 1)
    assert state.resume(None) == 0
    assert not taken.exists()
    assert not (run.path / "wandb_id.txt").exists()


def test_a_checkpoint_of_before_digests_were_recorded_is_known_by_lengths(run):
    cut_logs(run, {"logs": {"metrics.jsonl": 2, "trajectories.jsonl": 13}})
    assert run.metrics.read_text() == "on"
    with pytest.raises(RunError, match=r"metrics\.jsonl holds 2 bytes, but it held 5 .*rows were removed"):
        cut_logs(run, {"logs": {"metrics.jsonl": 5}})


def test_a_log_that_is_read_and_was_changed_is_refused(run):
    position = log_positions(run)
    run.metrics.write_text("two\n")
    with pytest.raises(RunError, match=r"first 4 bytes of .*metrics\.jsonl"):
        cut_logs(run, position)


@pytest.mark.parametrize("is_resumed", [True, False])
def test_a_folder_in_the_place_of_a_log_is_refused(run, is_resumed):
    position = log_positions(run) if is_resumed else {}
    run.metrics.unlink()
    run.metrics.mkdir()
    with pytest.raises(RunError, match=r"metrics\.jsonl is a folder, and a file .* is expected .*Restore the file"):
        cut_logs(run, position)


def test_an_empty_log_that_was_removed_is_empty(run):
    run.questions.touch()
    position = log_positions(run)
    run.questions.unlink()
    cut_logs(run, position)
    assert not run.questions.exists()


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
        return {name: Part(lambda path: path.mkdir(), learner) for name, learner in learners.items()}

    begun, resumed = parts(), parts()
    begun["policy"].learner.step, begun["critic"].learner.step = 3, 5
    RunState(RunDirectory(tmp_path), begun, 1).save(5)
    assert RunState(RunDirectory(tmp_path), resumed, 1).resume(latest_checkpoint(tmp_path)) == 5
    assert (resumed["policy"].learner.step, resumed["critic"].learner.step) == (3, 5)
