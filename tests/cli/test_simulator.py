"""`evoseek simulator`: the whole way with the tiny policy, in small; and what is said when a step cannot be made."""

import json
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.doubles.earlier import begun_earlier
from tests.doubles.scripted import ScriptedChat

from evoseek.cli.main import main
from evoseek.models.load import load_policy
from evoseek.models.policy import has_adapters
from evoseek.questions.questions import load_questions, save_questions
from evoseek.renderers.encoding import plain
from evoseek.rollout.prompts import load_prompts
from evoseek.search.lexical import LexicalIndex
from evoseek.systems.zerosearch.engine import SimulatedEngine, simulator_reply
from evoseek.systems.zerosearch.searches import load_records
from evoseek.world.world import World, save_world_card

WORLD = World.generate(1, 200, "train")
TOP_3 = ("--set", "search.top_k=3")


@pytest.fixture
def cli(capsys, monkeypatch):
    """Run the command line in this process: (exit status, stdout, stderr with single spaces)."""

    def run(*words):
        monkeypatch.setattr("sys.argv", ["evoseek", "simulator", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, " ".join(captured.err.split())

    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A world's index, card and questions."""
    path = tmp_path_factory.mktemp("world")
    LexicalIndex.build(path / "index", WORLD.passages())
    save_world_card(path / "world.json", WORLD)
    save_questions(path / "questions.jsonl", WORLD.questions(8, seed=0))
    return path


def collect(cli, folder: Path, out: Path, *more):
    source = ("--index", folder / "index", "--questions", folder / "questions.jsonl", "--model", "tiny")
    return cli("collect", out, *source, *TOP_3, *more)


def test_the_whole_way(cli, folder, tmp_path):
    searches, labelled = tmp_path / "searches.jsonl", tmp_path / "labelled.jsonl"
    status, out, _ = collect(cli, folder, searches, "--pages", "2", "--limit", "6")
    assert status == 0
    assert "6 rollouts. Searches in" in out
    records = load_records(searches)
    assert {record.page for record in records} == {1, 2}
    assert len({record.question.id for record in records}) == 6
    assert all(len(record.passages) == 3 for record in records)
    begun_earlier(searches)
    assert collect(cli, folder, searches, "--pages", "2", "--limit", "6")[0] == 0
    assert load_records(searches) == records

    status, out, _ = cli("label", searches, labelled, "--world", folder / "world.json")
    assert status == 0
    useful = [record for record in load_records(labelled) if record.useful]
    assert f"{len(useful)} useful" in out
    assert 0 < len(useful) < len(records)

    tuning = ("--model", "tiny", "--steps", "2", "--tokens-per-step", "300", "--work", tmp_path / "work", *TOP_3)
    status, out, _ = cli("tune", labelled, tmp_path / "made", *tuning, "--set", "lora.rank=2")
    assert status == 0
    assert f"Tuning on {len(useful)} useful and {len(records) - len(useful)} noisy searches, after step 0." in out
    made = load_policy(str(tmp_path / "made"))
    assert not has_adapters(made.model)
    assert made.model.config.evoseek_prompts == "tiny"

    status, _, err = cli("tune", labelled, tmp_path / "made", *tuning)
    assert (status, "is there already" in err) == (2, True)
    status, _, err = cli("tune", labelled, tmp_path / "other", *tuning)
    assert (status, "another recipe" in err) == (2, True)

    short = ("--model", tmp_path / "made", "--count", "2", "--set", "simulator.max_tokens=4", *TOP_3)
    status, _, err = cli("check", searches, "--world", folder / "world.json", *short)
    assert (status, "No reply of" in err) == (2, True)


def test_labelling_is_gone_on_with_and_nothing_is_overwritten(cli, folder, tmp_path, monkeypatch):
    searches, labelled, world = tmp_path / "s.jsonl", tmp_path / "new" / "l.jsonl", folder / "world.json"
    collect(cli, folder, searches)
    whole = searches.read_bytes()
    status, _, err = cli("label", searches, searches, "--world", world)
    assert (status, "was begun with other settings" in err) == (2, True)
    assert searches.read_bytes() == whole

    monkeypatch.setattr("evoseek.systems.zerosearch.searches.LABELLED", 3)
    with monkeypatch.context() as patch:
        patch.setattr("evoseek.curation.batches.stop_on_interrupt", lambda say: stop_after(1))
        status, out, _ = cli("label", searches, labelled, "--world", world)
    assert (status, "Stopped after 3 of" in out) == (130, True)
    assert len(load_records(labelled)) == 3
    status, _, _ = cli("label", searches, labelled, "--world", world)
    assert status == 0
    assert [record.query for record in load_records(labelled)] == [record.query for record in load_records(searches)]

    status, _, err = cli("label", searches, labelled, "--set", "judge.model=tiny")
    assert (status, "begun with other settings" in err) == (2, True)


@contextmanager
def stop_after(batches):
    left = iter(range(batches))
    yield lambda: next(left, None) is None


def test_a_check_is_printed_and_written(cli, folder, tmp_path, monkeypatch):
    searches, questions = tmp_path / "searches.jsonl", folder / "questions.jsonl"
    collect(cli, folder, searches)
    golden = {question.text: question.golden_answers[0] for question in load_questions(questions)}

    def reply(messages, key):
        said = plain(messages[0].content)
        answer = next(answer for text, answer in golden.items() if text in said)
        return simulator_reply([answer if "noisy" not in key else "nothing", "two", "three"])

    chat = ScriptedChat(reply, name="the-simulator")
    engine = SimulatedEngine(chat, load_prompts("default"), max_words=100, seed=0)
    monkeypatch.setattr("evoseek.systems.zerosearch.engine.simulated_engine", lambda *_, **__: engine)
    output = tmp_path / "check.json"
    more = ("--model", "the-simulator", "--count", "5", "--output", output)
    status, out, _ = cli("check", searches, *more, *TOP_3)
    assert status == 0
    assert "golden answer" in out
    found = json.loads(output.read_text())
    assert (found["simulator"], found["documents"]) == ("the-simulator", 3)
    assert found["stating"]["useful"]["golden answer"]["mean"] == 1.0
    assert found["stating"]["noisy"]["golden answer"] == {
        "mean": 0.0,
        "interval": {"low": 0.0, "high": pytest.approx(0.4345, abs=1e-3)},  # Wilson, 0 of 5
        "n": 5,
        "n_invalid": 0,
    }
    status, _, err = cli("check", searches, *more, *TOP_3)
    assert (status, "is there already" in err) == (2, True)


def test_collecting_is_gone_on_with_and_gives_the_same_file(cli, folder, tmp_path, monkeypatch):
    monkeypatch.setattr("evoseek.systems.zerosearch.searches.COLLECTED", 3)
    status, said, _ = collect(cli, folder, tmp_path / "whole.jsonl", "--pages", "2")
    assert status == 0
    out = tmp_path / "stopped.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr("evoseek.curation.batches.stop_on_interrupt", lambda say: stop_after(1))
        status, stopped, _ = collect(cli, folder, out, "--pages", "2")
    assert (status, "Stopped after 3 of 8 rollouts" in stopped) == (130, True)
    moved = tmp_path / "moved"
    shutil.copytree(folder, moved)
    status, resumed, _ = collect(cli, moved, out, "--pages", "2")
    assert (status, resumed.splitlines()[-1]) == (0, said.splitlines()[-1].replace("whole", "stopped"))
    assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    LexicalIndex.build(moved / "index", list(WORLD.passages())[:-1])
    status, _, err = collect(cli, moved, out, "--pages", "2")
    assert (status, "search.index.sha256 was" in err) == (2, True)


def test_mistakes_are_told(cli, folder, tmp_path):
    collect(cli, folder, tmp_path / "s.jsonl", "--limit", "2")
    save_world_card(tmp_path / "other.json", World.generate(2, 200, "evaluation"))
    (tmp_path / "file").touch()
    for words, said in (
        (("label", tmp_path / "s.jsonl", tmp_path / "l.jsonl"), "judge.model is empty"),
        (("label", tmp_path / "s.jsonl", tmp_path / "l.jsonl", "--world", tmp_path / "other.json"), "No question of"),
        (("label", tmp_path / "s.jsonl", tmp_path / "l.jsonl", "--world", "w.json", "--model", "tiny"), "Give one of"),
        (("tune", tmp_path / "s.jsonl", tmp_path / "made", "--work", tmp_path / "w", *TOP_3), "has no label"),
        (("check", tmp_path / "s.jsonl"), "simulator.model is empty"),
        (("check", tmp_path / "s.jsonl", "--output", tmp_path / "file" / "x.json"), "cannot be made"),
        (("label", folder / "questions.jsonl", tmp_path / "l.jsonl", "--world", folder / "world.json"), "jsonl:1:"),
        (("collect", tmp_path / "c.jsonl", "--model", "tiny"), "No index was given"),
        (("collect", tmp_path / "c.jsonl", "--set", "search.name=remote"), "results are collected from an index"),
    ):
        status, _, err = cli(*words)
        assert (status, said in err) == (2, True), err
        assert "bug" not in err
    assert not (tmp_path / "l.jsonl").exists()
