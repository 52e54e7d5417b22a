"""The demonstration with a real model, on the tiny policy and on a small random one, and documents that the former can
read."""

import json
from importlib import import_module
from itertools import islice
from pathlib import Path

import pytest

from evoseek.questions.questions import save_questions
from evoseek.run import Run
from evoseek.training.interrupt import INTERRUPTED
from evoseek.world.world import World

pytestmark = pytest.mark.slow


@pytest.fixture
def data(tmp_path):
    """Documents of a generated world, with labelled questions, one of which they do not answer."""
    folder, world = tmp_path / "data", World.generate(0, 200, "train")
    folder.mkdir()
    passages = list(islice(world.passages(), 12))
    rows = ({"id": one.document_id, "title": one.title, "text": one.text} for one in passages)
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = world.questions(4, seed=1, hops=(1, 2))
    save_questions(folder / "dev.jsonl", asked)
    hidden = {"question": f"Where is {passages[0].title}?", "answerable": False, "hidden": [passages[0].document_id]}
    with (folder / "dev.jsonl").open("a") as file:
        file.write(json.dumps({"id": "hidden", "golden_answers": [], **hidden}) + "\n")
    return folder


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "bench")
    return import_module("demo_real")


@pytest.fixture
def demo_real(script, capsys):
    """Run the script in this process: (exit status, stdout, stderr)."""

    def run(*words):
        status = script.main([*map(str, words)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def files_of(folder):
    return {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_from_documents_alone_to_scores_with_an_interruption(data, tmp_path, demo_real, monkeypatch):
    words = ("--run-dir", tmp_path / "out", "--data", data, "--max-minutes", 0.001, "--model", "tiny")
    train = Run.train

    def interrupted(run):  # as Ctrl-C in the first step of reinforcement learning
        run.is_interrupted = run.settings.run.system != "sft"
        if not run.is_interrupted:
            train(run)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "train", interrupted)
        status, first, err = demo_real(*words)
    assert status == INTERRUPTED, err
    assert first.startswith("Planned for at most 0.001 minutes")
    assert "Measuring the policy of the cold start on 5 held-out questions" in first
    cold_start = tmp_path / "out/run/cold_start"
    written = files_of(cold_start)
    learnt = (cold_start / "sft/metrics.jsonl").read_bytes()

    status, out, err = demo_real(*words)
    assert status == 0, err
    assert "Writing" not in out
    assert files_of(cold_start) == written
    assert (cold_start / "sft/metrics.jsonl").read_bytes() == learnt
    for phrase in ("before", "after", "greedy", "search off", "hops", "refused", "n=4", "n=1", "ended it"):
        assert phrase in out
    assert f"review {tmp_path}/out/run" in " ".join(out.split())

    trained = (tmp_path / "out/run/metrics.jsonl").read_bytes()
    status, again, err = demo_real(*words)
    assert status == 0, err
    assert (tmp_path / "out/run/metrics.jsonl").read_bytes() == trained
    assert again[again.index("Held-out") :] == out[out.index("Held-out") :]


@pytest.mark.merge
def test_without_labelled_questions_those_that_were_held_out_are_the_score(data, random_model, tmp_path, demo_real):
    (data / "dev.jsonl").unlink()
    model = random_model("tags", tmp_path / "model")
    words = ("--run-dir", tmp_path / "out", "--data", data, "--max-minutes", 0.001, "--model", model)
    status, out, err = demo_real(*words)
    assert status == 0, err
    assert "has no dev.jsonl: the score will be on questions that the cold start writes and holds out" in out
    held_out = (tmp_path / "out/run/cold_start/held_out.jsonl").read_text().splitlines()
    assert f"on {len(held_out)} held-out questions" in out


def test_a_folder_without_documents_is_an_error(tmp_path, demo_real):
    status, _, err = demo_real("--data", tmp_path, "--run-dir", tmp_path / "out")
    assert status == 2
    assert "has no corpus.jsonl" in err
    assert not (tmp_path / "out").exists()


def test_documents_about_which_nothing_can_be_asked_are_an_error(data, tmp_path, demo_real):
    (data / "corpus.jsonl").write_text('{"id": "a", "title": "Numbers", "text": "1 2 3 4 5 6"}\n')
    status, _, err = demo_real("--data", data, "--run-dir", tmp_path / "out", "--model", "tiny")
    assert status == 2
    assert "No question could be written about the 1 documents" in err


def test_mistakes_in_questions_are_reported_before_the_cold_start(data, tmp_path, demo_real):
    (data / "dev.jsonl").write_text("{")
    status, _, err = demo_real("--data", data, "--run-dir", tmp_path / "out")
    assert status == 2
    assert "dev.jsonl" in err
    assert not (tmp_path / "out").exists()


def test_the_time_is_a_number_above_0(tmp_path, demo_real):
    status, _, err = demo_real("--run-dir", tmp_path / "out", "--max-minutes", "nan")
    assert status == 2
    assert "--max-minutes is nan" in err


def test_both_measurements_and_the_cold_start_are_taken_from_the_time(script):
    # 60 minutes less 12 of the cold start, 3 of the first measurement and 1.75 times 3 of the second
    left = script.minutes_left
    assert left(60, cold_start=720, measuring=180) == pytest.approx(60 - 12 - 3 - 5.25)
    assert left(5, cold_start=600, measuring=60) == 0.05  # a moment, where nothing is left


def test_the_plan_says_what_is_left_for_reinforcement_learning(script):
    # 60 minutes less 2 of writing, 13 of demonstrations, and 4 and 7 of measurements
    plan = script.plan
    assert "first measurement 4, reinforcement learning 34, last measurement 7." in plan(60)
    assert "reinforcement learning 0," in plan(20)
