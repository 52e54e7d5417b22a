import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.errors import ConfigError, RunError, RunLockedError
from evoseek.runs import RunDirectory, flatten


def test_lock_is_exclusive_and_named(tmp_path):
    run = RunDirectory(tmp_path / "run")
    with run.locked(), pytest.raises(RunLockedError, match=r"pid \d+"), RunDirectory(tmp_path / "run").locked():
        pass
    with RunDirectory(tmp_path / "run").locked():
        pass


def test_nothing_is_made_before_the_lock(tmp_path):
    RunDirectory(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_place_that_cannot_be_a_directory(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="--run-dir"), RunDirectory(tmp_path / "file" / "run").locked():
        pass


def test_a_folder_of_other_things_is_left_alone(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("mine")
    (tmp_path / "thesis.txt").write_text("precious")
    with (
        pytest.raises(RunError, match=r"metrics\.jsonl and 1 more.*new, empty or already holds a run"),
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


def test_claim_keeps_the_config_and_refuses_another(tmp_path):
    run = RunDirectory(tmp_path)
    run.claim({"run": {"steps": 5, "seed": 0}})
    run.claim({"run": {"steps": 9, "seed": 0}}, may_differ={"run.steps"})
    assert json.loads(run.config.read_text()) == {"run": {"steps": 9, "seed": 0}}
    with pytest.raises(ConfigError, match=r"run\.seed was 0, now 1"):
        run.claim({"run": {"steps": 9, "seed": 1}})
    with pytest.raises(ConfigError, match=r"run\.seed was 0, now None"):
        run.claim({"run": {"steps": 9}})


def test_damaged_config_is_said(tmp_path):
    run = RunDirectory(tmp_path)
    run.config.write_text("{")
    with pytest.raises(RunError, match="damaged"):
        run.claim({})


def test_rewind_cuts_the_logs_back(tmp_path):
    run = RunDirectory(tmp_path)
    run.metrics.write_text("one\n")
    positions = run.positions()
    assert positions == {"metrics.jsonl": 4, "timings.jsonl": 0, "trajectories.jsonl": 0, "questions.jsonl": 0}
    run.metrics.write_text("one\ntwo\n")
    run.trajectories.write_text("half")
    run.rewind(positions)
    assert run.metrics.read_text() == "one\n"
    assert run.trajectories.read_text() == ""


def test_rewind_refuses_a_log_that_lost_rows(tmp_path):
    run = RunDirectory(tmp_path)
    run.metrics.write_text("one\n")
    with pytest.raises(RunError, match="rows were removed"):
        run.rewind({"metrics.jsonl": 5})


@given(st.recursive(st.integers(), lambda inner: st.dictionaries(st.text("abc", min_size=1), inner, min_size=1)))
def test_flatten_keeps_every_leaf(tree):
    def leaves(node):
        return [leaf for inner in node.values() for leaf in leaves(inner)] if isinstance(node, dict) else [node]

    assert sorted(flatten({"x": tree}).values()) == sorted(leaves(tree))
