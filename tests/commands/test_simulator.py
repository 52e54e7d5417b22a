"""`evoseek simulator`: the whole way with the tiny policy, in small; and what is said when a step cannot be made."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from evoseek.cli import main
from evoseek.commands.simulator import check
from evoseek.config import load_config
from evoseek.corpus.oracle import save_world_card
from evoseek.corpus.questions import save_questions
from evoseek.corpus.world import World
from evoseek.env.prompts import load_prompts
from evoseek.env.simulator import simulator_reply
from evoseek.policy.load import load_policy
from evoseek.policy.policy import has_adapters
from evoseek.policy.scripted import ScriptedChat
from evoseek.search.lexical import LexicalIndex
from evoseek.systems.search_records import load_records

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
    assert "6 rollouts made" in out
    records = load_records(searches)
    assert {record.page for record in records} == {1, 2}
    assert len({record.question.id for record in records}) == 6
    assert all(len(record.passages) == 3 for record in records)

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
    assert (status, "Not one reply of" in err) == (2, True)


def test_a_check_is_printed_and_written(folder, tmp_path, cli, capsys):
    searches = tmp_path / "searches.jsonl"
    collect(cli, folder, searches)
    golden = {record.question.id: record.question.golden_answers[0] for record in load_records(searches)}

    def reply(messages, key):
        _, kind, question, _ = key.split("/")
        return simulator_reply([golden[question] if kind == "useful" else "nothing", "two", "three"])

    check(
        ScriptedChat(reply, name="the-simulator"),
        load_prompts("tiny"),
        load_config(sets=["search.top_k=3"]),
        searches,
        world=None,
        count=5,
        output=tmp_path / "check.json",
        console=Console(width=120),
    )
    assert "hold the answer, golden answer" in capsys.readouterr().out
    found = json.loads((tmp_path / "check.json").read_text())
    assert (found["simulator"], found["documents"]) == ("the-simulator", 3)
    assert found["holding"]["useful"]["all"]["mean"] == 1.0
    assert found["holding"]["noisy"]["all"] == {
        "mean": 0.0,
        "interval": {"low": 0.0, "high": pytest.approx(0.4345, abs=1e-3)},  # Wilson, 0 of 5
        "n": 5,
        "n_invalid": 0,
    }
    assert found["style"]["useful"]["documents"] == 3.0


def test_mistakes_are_told(cli, folder, tmp_path):
    collect(cli, folder, tmp_path / "s.jsonl", "--limit", "2")
    for words, said in (
        (("label", tmp_path / "s.jsonl", tmp_path / "l.jsonl"), "set judge.model"),
        (("tune", tmp_path / "s.jsonl", tmp_path / "made", "--work", tmp_path / "w", *TOP_3), "has no label"),
        (("check", tmp_path / "s.jsonl"), "set simulator.model"),
        (("label", folder / "questions.jsonl", tmp_path / "l.jsonl", "--world", folder / "world.json"), "jsonl:1:"),
        (("collect", tmp_path / "c.jsonl", "--model", "tiny"), "No index was given"),
    ):
        status, _, err = cli(*words)
        assert (status, said in err) == (2, True), err
        assert "bug" not in err
    assert not (tmp_path / "l.jsonl").exists()
