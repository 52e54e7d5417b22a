"""The demonstration with a real model, on a small random one and a folder of a few documents."""

import json

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture
def data(tmp_path):
    """Documents about rivers and hills, with questions."""
    folder = tmp_path / "data"
    folder.mkdir()
    names = [f"place{n}" for n in range(12)]
    passages = [{"id": name, "title": name, "text": f"{name} lies in land{n}."} for n, name in enumerate(names)]
    questions = [
        {"id": f"{hops}/{name}", "question": f"Where is {name}?", "golden_answers": [f"land{n}"], "hops": hops}
        for hops in (1, 2)
        for n, name in enumerate(names)
    ]
    shown = [
        {
            "question": row["question"],
            "turns": [{"query": row["id"].partition("/")[2]}, {"answer": row["golden_answers"][0]}],
        }
        for row in questions
    ]
    files = {"corpus": passages, "train": questions, "dev": questions[::6], "demonstrations": shown}
    for name, rows in files.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_it_trains_in_two_parts_and_shows_scores_by_hops(data, random_model, tmp_path, cli):
    words = ("demo", "--real", "--run-dir", tmp_path / "out", "--data", data, "--max-minutes", 0.001)
    model = random_model("tags", tmp_path / "model")
    status, out, err = cli(*words, "--model", model)
    assert status == 0, err
    for phrase in ("before", "after", "greedy", "search off", "hops", "n=4", "run.max_minutes ended it"):
        assert phrase in out
    steps = [json.loads(line)["step"] for line in (tmp_path / "out/sft/metrics.jsonl").read_text().splitlines()]
    assert steps[-1] == 2  # 24 demonstrations, one of them held out, 16 a step

    status, again, err = cli(*words, "--model", model)
    assert status == 0, err
    assert again[again.index("Held-out") :] == out[out.index("Held-out") :]


def test_a_folder_without_the_files_is_an_error(tmp_path, cli):
    status, _, err = cli("demo", "--real", "--data", tmp_path, "--run-dir", tmp_path / "out")
    assert status == 2
    assert "has no corpus.jsonl and no train.jsonl and no dev.jsonl and no demonstrations.jsonl" in err


def test_data_is_for_the_real_demo(tmp_path, cli):
    status, _, err = cli("demo", "--data", tmp_path)
    assert status == 2
    assert "--data and --model are for --real" in err


def test_a_real_model_is_trained_by_one_process(data, tmp_path, cli):
    status, _, err = cli("demo", "--real", "--data", data, "--run-dir", tmp_path / "out", "--processes", 2)
    assert status == 2
    assert "--processes is for the demo without --real" in err


def test_mistakes_in_questions_are_told_before_the_warm_start(data, tmp_path, cli):
    (data / "dev.jsonl").write_text("{")
    status, _, err = cli("demo", "--real", "--data", data, "--run-dir", tmp_path / "out")
    assert status == 2
    assert "dev.jsonl" in err
    assert not (tmp_path / "out" / "sft").exists()
