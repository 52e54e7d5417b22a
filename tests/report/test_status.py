import json

import pytest

from evoseek.assembly.sources import load_settings
from evoseek.config import trust
from evoseek.errors import RunError
from evoseek.report.status import RunStatus, is_writing_questions, status
from evoseek.report.view.source import RunSource
from evoseek.storage.files import remove_directory
from evoseek.storage.runs import RunDirectory


@pytest.fixture
def run(tmp_path):
    """A run of Dr. Zero that was stopped after step 4 of 6, with a checkpoint at step 3."""
    options = {"dr_zero.iterations": 1, "dr_zero.proposer_steps": 2, "dr_zero.writing_steps": 1}
    settings = load_settings(system="dr-zero", options={**options, "dr_zero.solver_steps": 3, "run.seed": 7})
    made = RunDirectory(tmp_path / "run")
    with made.locked():
        made.claim(settings.resolved())
    save(made, 3)
    rows = [
        {"step": 0, "eval/reward": 0.25, "eval/n": 4.0},
        {"step": 1, "proposer/reward": 0.125, "proposer/rollout/invalid_frac": 0.5},
        {"step": 2, "proposer/reward": 0.5, "proposer/rollout/invalid_frac": 0.25},
        {"step": 3, "solver/reward": 0.3, "solver/tools/call_frequency": 1.5, "eval/reward": 0.5, "eval/n": 4.0},
        {"step": 4, "solver/reward": 0.4, "solver/tools/call_frequency": 1.25},
    ]
    made.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    timings = [{"step": step, "step/seconds": seconds} for step, seconds in enumerate((10.0, 20.0, 30.0, 40.0), 1)]
    made.timings.write_text("".join(json.dumps(row) + "\n" for row in timings))
    return made


def save(run, step):
    """What status sees of a checkpoint."""
    folder = run.path / "checkpoints" / f"step-{step:06d}"
    folder.mkdir(parents=True)
    (folder / "state.json").write_text("{}")


def words(lines, about):
    return [text for name, text in lines if name == about]


def test_a_stopped_run(run):
    lines = status(run.path)
    killed = "no reason was recorded: the process was killed, or the machine ended"
    assert words(lines, "Run") == [f"{run.path}: stopped: {killed}"]
    assert words(lines, "System") == ["dr-zero, model tiny, seed 7"]
    assert words(lines, "Step") == ["4 of 6"]
    assert words(lines, "Checkpoint") == ["step 3; 1 steps since then are made again"]
    # Wilson, 2 of 4: (0.5 + z2/8 -+ z sqrt(1/16 + z2/64)) / (1 + z2/4) with z2 = 3.8415 is 0.150 and 0.850
    (held_out,) = words(lines, "Held-out")
    assert held_out.startswith("exact_match 0.500 [0.150, 0.850] (n=4) at step 3; at the beginning 0.250 [")
    assert words(lines, "Solver") == ["reward 0.4, searches 1.25 (step 4)"]
    assert words(lines, "Proposer") == ["reward 0.5, invalid 25% (step 2)"]
    # 100 seconds for 4 steps: 25 each, 2 are left
    assert words(lines, "Time") == [
        "1 min 40 s of steps; about 50 s more if it is resumed, at the mean of the steps so far, without evaluations"
    ]
    assert words(lines, "Next")[0] == f"evoseek train --run-dir {run.path}"
    assert len(lines) <= 24


def test_a_running_and_a_finished_one(run):
    with run.locked():
        assert words(status(run.path), "Run")[0].startswith(f"{run.path}: running (process ")
    assert run.holder() is None
    with run.metrics.open("a") as file:
        file.write(json.dumps({"step": 6, "solver/reward": 0.5}) + "\n")
    save(run, 6)
    lines = status(run.path)
    assert words(lines, "Run") == [f"{run.path}: finished"]
    assert words(lines, "Time") == ["1 min 40 s of steps"]
    assert words(lines, "Next")[0] == f"evoseek eval --run-dir {run.path}"


def test_an_empty_folder_is_no_checkpoint(run):
    (run.path / "checkpoints" / "step-99").mkdir()
    assert words(status(run.path), "Checkpoint") == ["step 3; 1 steps since then are made again"]


def test_a_metrics_file_that_is_missing_or_binary_is_named(run):
    run.metrics.write_bytes(bytes(range(128, 256)))
    (step,) = words(status(run.path), "Step")
    assert step == f"unknown, 3 or more of 6: {run.metrics} holds no row that can be read. Restore it from a copy"
    run.metrics.unlink()
    assert words(status(run.path), "Step") == [f"unknown, 3 or more of 6: {run.metrics} is missing"]
    run.timings.unlink()
    assert words(status(run.path), "Time") == [f"unknown: {run.timings} is missing, or holds no row that can be read"]


def test_before_the_first_row_the_steps_are_those_of_the_checkpoints(run):
    run.metrics.write_text("")
    assert words(status(run.path), "Step") == ["3 of 6"]
    run.metrics.unlink()
    remove_directory(run.path / "checkpoints")
    assert words(status(run.path), "Step") == ["0 of 6"]


def test_a_time_that_is_no_number_counts_as_none(run):
    with run.timings.open("a") as file:
        file.write('{"step": 5, "step/seconds": NaN}\n{"step": 6, "step/seconds": 1e999}\n')
    assert words(status(run.path), "Time")[0].startswith("1 min 40 s of steps")


def test_a_limit_of_time_bounds_what_is_left(run):
    read = RunStatus.read(run)
    settings = load_settings(system="dr-zero", options={"run.max_minutes": 2.0})
    limited = RunStatus(run, settings, read.rows, read.timings, None, (3,))
    assert limited.seconds_left == 20.0  # of 120, 100 are used


def test_trap_steps_that_failed_do_not_say_how_the_policy_does(run):
    """Too many rollouts of step 7 were invalid."""
    low = {"solver/reward": 0.0, "eval/reward": 0.0, "eval/n": 4.0, "solver/frac_reward_zero_std": 1.0}
    with run.metrics.open("a") as file:
        file.writelines(json.dumps({"step": step, **low}) + "\n" for step in (5, 6))
        file.write(json.dumps({"step": 7, **low, "solver/reward": 0.9, "rollout/too_many_invalid": 1.0}) + "\n")
    (held_out,) = words(status(run.path), "Held-out")
    assert held_out.startswith("exact_match 0.000")
    assert words(lines := status(run.path), "Held-out")
    assert "step 6" in words(lines, "Solver")[0]
    with run.metrics.open("a") as file:
        file.write(json.dumps({"step": 8, "eval/reward": 0.75, "eval/n": 4.0}) + "\n")
    assert RunSource.open(run.path).headline.endswith(", steps 0 and 8")


def test_the_reason_of_the_stop_is_told(run):
    run.stopped.write_text("Memory ran out.\nLower learner.token_budget.")
    assert words(status(run.path), "Run") == [f"{run.path}: stopped: Memory ran out. Lower learner.token_budget."]


def test_warnings_are_those_of_training(run):
    silent = {"solver/frac_reward_zero_std": 1.0, "solver/reward": 0.0, "solver/rollout/stop/answered": 1.0}
    with run.metrics.open("a") as file:
        file.writelines(json.dumps({"step": step, **silent}) + "\n" for step in (5, 6, 7))
    run.dump.write_text("{}")
    warnings = words(status(run.path), "Warning")
    assert warnings[0].startswith("For 3 steps all rollouts of every group had the same reward")
    assert "were not finite" in warnings[1]


def test_another_folder_is_refused(tmp_path):
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    with pytest.raises(RunError, match=r"is not a run\. Did you mean .*runs/mine"):
        status(tmp_path / "runs" / "mins")


def test_a_run_whose_cold_start_is_made_says_so(tmp_path):
    made = RunDirectory(tmp_path / "run")
    with made.locked():
        lines = status(made.path)
    assert words(lines, "Run")[0].startswith(f"{made.path}: running (process ")
    assert words(lines, "Run")[0].endswith("; cold start: writing questions")
    assert is_writing_questions(made.path)
    assert words(lines, "Next") == []
    learning = RunDirectory(made.path / "cold_start" / "sft")
    with learning.locked():
        learning.claim(load_settings(system="sft").resolved())
    stopped = f"{made.path}: stopped; cold start: learning the demonstrations, step"
    resumed = ("Next", "the command that began it resumes it")
    assert status(made.path) == [("Run", f"{stopped} 0"), resumed]
    learning.metrics.write_text('{"step": 24, "loss": 1.5, "demonstrations/epoch": 0.4223163}\n')  # of 909
    learning.timings.write_text('{"step": 24, "step/seconds": 60.0}\n')
    assert status(made.path) == [("Run", f"{stopped} 24 of 57, about 33 min 0 s left"), resumed]
    assert not is_writing_questions(made.path)
    source = RunSource.open(made.path)  # what the printed `evoseek view` opens
    assert (source.system, source.name) == ("sft", "run: cold start")
    assert "cold_start/questions.jsonl" in source.notes[0]


@pytest.mark.parametrize(
    "key", ["run.system", "reward.name", "credit.name", "loss.name", "tools", "trackers", "stages"]
)
def test_the_status_of_a_run_with_code_of_its_own_imports_none_and_says_how_it_is_resumed(run, key, monkeypatch):
    config = run.read_config() if key != "stages" else load_settings().resolved()
    table, _, name = key.partition(".")
    code = "not_there.at_all:Part"
    config[table] = (
        {**config[table], name: code} if name else [{"name": code if key != "stages" else "a", "loss": code}]
    )
    run.config.write_text(json.dumps(config))
    lines = status(run.path)
    assert words(lines, "System")[0].startswith(code if key == "run.system" else config["run"]["system"])
    (following,) = words(lines, "Next")
    assert code in following
    assert f"evoseek train --run-dir {run.path} --config FILE" in following
    if key != "credit.name":  # whose class says what a warning is
        monkeypatch.setattr(trust, "_named", {code})
    assert key == "credit.name" or words(status(run.path), "Next")[-1] == f'evoseek ask --run-dir {run.path} "..."'


def test_a_run_with_a_setting_that_is_gone_is_shown(run):
    saved = json.loads(run.config.read_text())
    run.config.write_text(json.dumps(saved | {"run": saved["run"] | {"rollbacks": 3}}))
    assert words(status(run.path), "Step") == ["4 of 6"]
