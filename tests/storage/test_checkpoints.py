"""Checkpoints of a run that trains: one that is deleted between the choice and the loading."""

import shutil
import warnings

import pytest

from evoseek.errors import PolicyError
from evoseek.learner.checkpoint import save_checkpoint
from evoseek.models import load
from evoseek.models.source import tiny_policy_dir
from evoseek.storage import checkpoints
from evoseek.storage.checkpoints import from_lasting, latest_checkpoint, list_checkpoints


@pytest.fixture
def trains(tmp_path):
    """`trains(step)`: the run saves a checkpoint and deletes the one before, as with keep_checkpoints = 1."""

    def save(step):
        save_checkpoint(tmp_path, step=step, parts={}, position={})
        shutil.copytree(tiny_policy_dir(), tmp_path / "checkpoints" / f"step-{step:06d}" / "policy")
        for _, directory in list_checkpoints(tmp_path)[1:]:
            shutil.rmtree(directory)

    return save


def test_what_is_gone_before_it_is_loaded_is_looked_for_again(trains, tmp_path):
    (tmp_path / "checkpoints").mkdir()
    save_checkpoint(tmp_path, step=1, parts={}, position={})
    tried = []

    def loaded(checkpoint):
        tried.append(checkpoint.step)
        if checkpoint.step < 3:
            save_checkpoint(tmp_path, step=checkpoint.step + 1, parts={}, position={})
            shutil.rmtree(checkpoint.directory)
            raise PolicyError("there is no such directory")
        return checkpoint

    assert from_lasting(latest_checkpoint(tmp_path), loaded).step == 3
    assert tried == [1, 2, 3]


def test_an_error_about_a_checkpoint_that_is_there_and_a_run_without_any_are_reported(tmp_path):
    save_checkpoint(tmp_path, step=1, parts={}, position={})
    chosen = latest_checkpoint(tmp_path)

    def broken(checkpoint):
        raise PolicyError("its weights are damaged")

    with pytest.raises(PolicyError, match="damaged"):
        from_lasting(chosen, broken)
    with pytest.raises(PolicyError, match="damaged"):
        from_lasting(None, broken)
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(PolicyError, match="damaged"):  # and not the model that the run began with
        from_lasting(chosen, broken)


def test_one_that_goes_while_it_is_checked_is_no_damaged_one(tmp_path, monkeypatch):
    save_checkpoint(tmp_path, step=1, parts={}, position={})
    check = checkpoints.load_checkpoint

    def slow(directory):
        if directory.name == "step-000001":
            save_checkpoint(tmp_path, step=2, parts={}, position={})
            shutil.rmtree(directory)
        return check(directory)

    monkeypatch.setattr(checkpoints, "load_checkpoint", slow)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert latest_checkpoint(tmp_path).step == 2


def test_a_run_that_is_named_as_a_model_is_loaded_from_what_it_saved_last(trains, tmp_path, monkeypatch):
    trains(1)
    find = load.find_policy

    def late(name):
        found = find(name)
        if found.endswith("step-000001/policy"):
            trains(2)
        return found

    monkeypatch.setattr(load, "find_policy", late)
    assert load.load_policy(str(tmp_path)).model.num_parameters() > 0
