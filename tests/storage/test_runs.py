import fcntl
import json
import os
from threading import Timer

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.raising import raises

from evoseek.storage.runs import Input, RunDirectory, changes, flatten, with_digests


def test_lock_is_exclusive_and_named(tmp_path):
    run = RunDirectory(tmp_path / "run")
    with run.locked(), raises("run.locked", match=r"pid \d+"), RunDirectory(tmp_path / "run").locked():
        pass
    with RunDirectory(tmp_path / "run").locked():
        pass


def test_who_looks_at_the_lock_for_an_instant_ends_no_run(tmp_path):
    run = RunDirectory(tmp_path / "run")
    with run.locked():
        pass
    with (run.path / "lock").open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        Timer(0.03, fcntl.flock, (looking, fcntl.LOCK_UN)).start()
        with run.locked():
            assert run.holder() == str(os.getpid())


def test_nothing_is_made_before_the_lock(tmp_path):
    RunDirectory(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_place_that_cannot_be_a_directory(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        raises("disk.failed", match=r"cannot be used \(Not a directory\)"),
        RunDirectory(tmp_path / "file" / "run").locked(),
    ):
        pass


def test_a_folder_of_other_things_is_left_alone(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("mine")
    (tmp_path / "thesis.txt").write_text("precious")
    with (
        raises("run.foreign_folder", match=r"metrics\.jsonl and 1 more.*new, empty or already holds a run"),
        RunDirectory(tmp_path).locked(),
    ):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.jsonl", "thesis.txt"]


def test_a_run_is_known_by_its_lock_or_its_checkpoints(tmp_path):
    (tmp_path / ".hidden").touch()
    with RunDirectory(tmp_path).locked():
        (tmp_path / "checkpoints" / "step-000010").mkdir(parents=True)
        (tmp_path / "notes.txt").touch()
    with RunDirectory(tmp_path).locked():
        pass
    (tmp_path / "lock").unlink()
    with RunDirectory(tmp_path).locked():
        pass


def make_checkpoint(run):
    (run.path / "checkpoints" / "step-000001").mkdir(parents=True)


@pytest.fixture
def begun(tmp_path):
    """A run with a checkpoint."""
    run = RunDirectory(tmp_path)
    make_checkpoint(run)
    return run


def test_claim_keeps_the_config_and_refuses_another(tmp_path):
    run = RunDirectory(tmp_path)
    run.claim({"run": {"steps": 5, "seed": 0}})
    make_checkpoint(run)
    run.claim({"run": {"steps": 9, "seed": 0}}, may_differ={"run.steps"})
    assert json.loads(run.config.read_text()) == {"run": {"steps": 9, "seed": 0}}
    with raises("run.other_config", match=r"run\.seed was 0, now 1"):
        run.claim({"run": {"steps": 9, "seed": 1}})
    with raises("run.other_config", match=r"run\.seed was 0, now None"):
        run.claim({"run": {"steps": 9}})


def test_a_run_without_a_checkpoint_begins_anew_with_other_settings(tmp_path):
    run = RunDirectory(tmp_path)
    run.claim({"run": {"seed": 0}}, {"questions.path": Input("/a/q", "a" * 64)})
    run.claim({"run": {"seed": 1}}, {"questions.path": Input("/a/q", "b" * 64)})
    assert run.read_config() == {"run": {"seed": 1}}


def test_checkpoints_without_a_config_are_not_resumed(begun):
    with raises("run.config_missing"):
        begun.claim({"run": {"seed": 1}})
    assert not begun.config.exists()


def test_what_may_differ_is_named_or_a_pattern():
    before, now = {"run": {"steps": 1, "seed": 0}}, {"run": {"steps": 2, "seed": 0}, "answerer": {"model": "m"}}
    assert changes(before, now, {"run.steps", "answerer.*"}) == ""
    assert changes(before, now, {"answerer*"}) == "run.steps was 1, now 2"


def test_a_setting_that_a_later_version_brought_had_its_default(tmp_path):
    run, defaults = RunDirectory(tmp_path), {"reward": {"penalty": 0.0}, "run": {"seed": 7}, "other": {"x": 1}}
    run.claim({"run": {"seed": 0}})
    make_checkpoint(run)
    run.claim({"run": {"seed": 0}, "reward": {"penalty": 0.0}}, defaults=defaults)
    assert run.read_config() == {"run": {"seed": 0}, "reward": {"penalty": 0.0}}
    run.config.write_text('{"run": {"seed": 0}}')
    with raises("run.other_config", match=r"same one: reward\.penalty was 0\.0, now 0\.5\. Restore"):
        run.claim({"run": {"seed": 0}, "reward": {"penalty": 0.5}}, defaults=defaults)


def test_damaged_config_is_said(begun):
    run = begun
    run.config.write_text("{")
    with raises("run.config_damaged"):
        run.claim({})
    run.config.unlink()
    run.config.mkdir()
    with raises("run.config_damaged", match=r"config\.json is damaged .*Is a directory.*Restore it"):
        run.claim({})


def test_a_run_is_resumed_by_what_its_inputs_hold_and_not_by_how_they_are_spelt(tmp_path):
    run, may_differ = RunDirectory(tmp_path), {"run.steps"}
    run.claim({"questions": {"path": "q"}}, {"questions.path": Input("/a/q", "a" * 64)}, may_differ=may_differ)
    make_checkpoint(run)
    run.claim({"questions": {"path": "./q"}}, {"questions.path": Input("/b/q", "a" * 64)}, may_differ=may_differ)
    assert json.loads(run.config.read_text()) == {"questions": {"path": "./q"}}
    with raises(
        "run.other_inputs", match=r"questions\.path was /b/q \(SHA-256 aaaaaaaaaaaa\), now /b/q .* \(bbbbbbbbbbbb"
    ):
        run.claim({"questions": {"path": "./q"}}, {"questions.path": Input("/b/q", "b" * 64)}, may_differ=may_differ)
    with raises("run.other_config", match=r"questions\.path was './q', now ''"):
        run.claim({"questions": {"path": ""}}, {}, may_differ=may_differ)


def test_a_run_of_before_inputs_were_recorded_is_known_by_its_settings(tmp_path):
    run = RunDirectory(tmp_path)
    run.claim({"questions": {"path": "q"}}, {"questions.path": Input("/a/q", "a" * 64)})
    make_checkpoint(run)
    run.inputs.unlink()
    with raises("run.other_config", match=r"was 'q', now '\./q'"):
        run.claim({"questions": {"path": "./q"}}, {"questions.path": Input("/a/q", "a" * 64)})
    run.claim({"questions": {"path": "q"}}, {"questions.path": Input("/a/q", "b" * 64)})
    with raises("run.other_inputs", match="holds something else"):
        run.claim({"questions": {"path": "q"}}, {"questions.path": Input("/a/q", "a" * 64)})


def test_a_damaged_record_of_inputs_is_said(tmp_path):
    run = RunDirectory(tmp_path)
    run.claim({}, {"questions.path": Input("/a/q", "a" * 64)})
    make_checkpoint(run)
    run.inputs.write_text(run.inputs.read_text().replace("/a/q", "/a/p"))
    with raises("run.inputs_damaged", match=r"inputs\.json is damaged .*checksum"):
        run.claim({}, {"questions.path": Input("/a/q", "a" * 64)})


def test_what_the_inputs_hold_stands_in_the_place_of_their_names():
    config = {"search": {"index": "a", "top_k": 3}, "run": {"seed": 0}}
    inputs = {"search.index": Input("/a", "1" * 64), "judge.model": Input("/j", "2" * 64)}
    assert with_digests(config, inputs) == {"search": {"index": {"sha256": "1" * 64}, "top_k": 3}, "run": {"seed": 0}}
    assert config["search"]["index"] == "a"


def test_what_a_killed_process_left_is_removed_when_the_run_is_taken_up(tmp_path):
    litter = [tmp_path / ".config.json.0123456789ab.tmp", tmp_path / "checkpoints" / ".step-000010.0123456789ab.tmp"]
    litter[1].mkdir(parents=True)
    litter[0].touch()
    (tmp_path / "lock").touch()
    with RunDirectory(tmp_path).locked():
        assert not any(path.exists() for path in litter)


@given(st.recursive(st.integers(), lambda inner: st.dictionaries(st.text("abc", min_size=1), inner, min_size=1)))
def test_flatten_keeps_every_leaf(tree):
    def leaves(node):
        return [leaf for inner in node.values() for leaf in leaves(inner)] if isinstance(node, dict) else [node]

    assert sorted(flatten({"x": tree}).values()) == sorted(leaves(tree))


def test_the_project_is_recorded_after_the_config(tmp_path):
    """A process that dies between them leaves an edit that counts as one when the run is resumed."""
    run = RunDirectory(tmp_path, project={"run.steps": 4})
    run.project.mkdir()  # it cannot be written
    with raises("disk.failed"):
        run.claim({"run": {"steps": 4}})
    assert json.loads(run.config.read_text()) == {"run": {"steps": 4}}


def test_a_folder_without_a_run_is_told_from_one_whose_config_is_damaged(tmp_path):
    run = RunDirectory(tmp_path)
    with raises("run.missing"):
        run.read_config()
    run.config.write_text("{")
    with raises("run.config_damaged"):
        run.read_config()
