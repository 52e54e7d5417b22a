import fcntl
import json

import pytest

from evoseek.errors import DataError, RunError
from evoseek.report.view.rollouts import rollout_of
from evoseek.report.view.source import RunSource
from evoseek.storage.runs import RunDirectory

ZERO = {"reward": 0.0, "frac_reward_zero_std": 1.0, "rollout/stop/answered": 1.0}


def test_a_line_that_is_still_being_written_is_left_out(make_run, make_row):
    run = make_run([make_row(0), make_row(1)])
    with (run / "trajectories.jsonl").open("a") as file:
        file.write('{"step": 2, "gro')
    source = RunSource.open(run)
    assert [rollout.id for rollout in source.rollouts(rollout_of)] == ["step-000001/q/0", "step-000001/q/1"]


@pytest.mark.parametrize(
    "value", ["not json", "[]", "null", '"x"', "1", '{"step": "x", "id": 1}', "[" * 100_000, '{"step": 1}']
)
def test_a_damaged_line_is_an_error_that_names_it(make_run, make_row, value):
    run = make_run([make_row()])
    with (run / "trajectories.jsonl").open("a") as file:
        file.write(value + "\n")
    with pytest.raises(DataError, match=r"trajectories\.jsonl:2 is not a rollout"):
        list(RunSource.open(run).rollouts(rollout_of))


def test_numbers_beyond_every_float_are_damaged_lines(make_run, make_row):
    run, huge = make_run([make_row(0, step=float("inf"))]), "1" + "0" * 400
    (run / "samples.jsonl").write_text(f'{{"id": "a", "advantages": {huge}}}\n')
    source = RunSource.open(run)
    with pytest.raises(DataError, match=r"trajectories\.jsonl:1 "):
        list(source.rollouts(rollout_of))
    with pytest.raises(DataError, match=r"samples\.jsonl:1 "):
        _ = source.credits


def test_warnings_are_those_of_training_with_the_step_at_which_they_began(make_run):
    run = make_run(metrics=[{"step": step, **ZERO} for step in range(1, 6)])
    ((step, text),) = RunSource.open(run).warnings
    assert step == 3
    assert text.startswith("For 3 steps all rollouts of every group had the same reward")


def test_the_alarm_of_self_play_is_shown(make_run):
    fooled = [
        {
            "step": step,
            "solver/answer_reward": 0.1 * step + 0.01 * (step % 2),
            "eval/reward": 1.0 - 0.1 * step,
            "eval/n": 1000,
        }
        for step in range(1, 10)
    ]
    warnings = RunSource.open(make_run(metrics=fooled)).warnings
    assert [step for step, _ in warnings] == [6]
    assert warnings[0][1].startswith("The roles may be fooling each other")


def test_what_is_no_run_is_an_error_that_says_so(tmp_path):
    with pytest.raises(RunError, match="There is no run"):
        RunSource.open(tmp_path / "nothing")
    with pytest.raises(RunError, match="holds no run"):
        RunSource.open(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="is a file"):
        RunSource.open(tmp_path / "file")


@pytest.fixture
def evaluation(tmp_path, make_row):
    """The folder of an evaluation, not yet finished."""
    folder = tmp_path / "results"
    folder.mkdir()
    settings = {"policy": {"model": "m"}, "evaluated": {"model": "runs/mine"}}
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "samples.jsonl").write_text(json.dumps({"question": "q", "number": 0}) + "\n")
    (folder / "trajectories.jsonl").write_text(json.dumps(make_row(step=0)) + "\n")
    return folder


def test_an_evaluation_is_shown_with_its_scores(evaluation):
    score = {"mean": 0.5, "interval_95": [0.25, 0.75], "n": 4, "n_invalid": 1}
    results = {"scores": {"exact_match": score}, "answers": {"unanswerable": {"answered_wrong": score}}}
    (evaluation / "results.json").write_text(json.dumps(results))
    source = RunSource.open(evaluation)
    shown = "0.500 [0.250, 0.750] (n=4, 1 invalid)"
    assert source.scores == [("EM", shown), ("unanswerable questions: answered wrong", shown)]
    assert [rollout.answer for rollout in source.rollouts(rollout_of)] == ["Meri"]
    assert (source.system, source.model, source.credits, source.notes) == ("evaluation", "runs/mine", {}, [])


@pytest.mark.parametrize("results", [None, "{", '{"scores": {"f1": {}}}', '{"scores": []}', "[1]"])
def test_an_evaluation_without_results_is_shown_with_a_note(evaluation, results):
    if results is not None:
        (evaluation / "results.json").write_text(results)
    source = RunSource.open(evaluation)
    assert (source.scores, len(source.notes), len(list(source.rollouts(rollout_of)))) == ([], 1, 1)
    assert "results.json" in source.notes[0]


def test_a_run_that_is_locked_is_running(make_run):
    run = make_run()
    (run / "lock").write_text("1\n")
    assert not RunSource.open(run).is_running
    with (run / "lock").open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert RunSource.open(run).is_running


@pytest.mark.parametrize("text", ["{", "[" * 100_000])
def test_damaged_settings_are_a_note(make_run, text):
    run = make_run()
    for name in ("config.json", "inputs.json"):
        (run / name).write_text(text)
    source = RunSource.open(run)
    assert source.system == "unknown"
    assert "config.json is damaged" in source.notes[0]
    assert source.tokenizer_file() is None


def test_an_unreadable_log_is_an_error(make_run):
    run = make_run()
    (run / "trajectories.jsonl").unlink()
    (run / "trajectories.jsonl").mkdir()
    with pytest.raises(DataError, match="cannot be read"):
        list(RunSource.open(run).rollouts(rollout_of))


def test_a_run_has_a_headline_from_its_first_to_its_last_evaluation(make_run, make_row):
    """Wilson's intervals of 10 and 30 of 40, by hand: .25 [.142, .402] and .75 [.598, .858]."""
    run = make_run([make_row()])
    rows = [{"step": step, "eval/reward": score, "eval/n": 40.0} for step, score in ((0, 0.25), (5, 0.5), (9, 0.75))]
    RunDirectory(run).metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert RunSource.open(run).headline == (
        "Held-out score 0.250 [0.142, 0.402] (n=40) → 0.750 [0.598, 0.858] (n=40), steps 0 and 9"
    )
    RunDirectory(run).metrics.write_text(json.dumps(rows[0]) + "\n")
    assert RunSource.open(run).headline == ""


def test_a_folder_that_is_called_run_has_the_name_of_its_project(make_run, make_row, tmp_path):
    make_run([make_row()], name="run").rename(tmp_path / "run-of-it")
    (tmp_path / "my-project").mkdir()
    (tmp_path / "run-of-it").rename(tmp_path / "my-project" / "run")
    assert RunSource.open(tmp_path / "my-project" / "run").name == "my-project"
