"""What all commands have in common: --help on a screen, --project and --dry-run."""

import json
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from evoseek.assembly import sources
from evoseek.assembly.sources import load_settings
from evoseek.cli.main import app
from evoseek.cli.options import COMMANDS as declared
from evoseek.config.sections import read_settings
from evoseek.search.lexical import LexicalIndex
from evoseek.storage.runs import RunDirectory
from evoseek.types import Passage

RUNNER = CliRunner()
READING = {"search", "compare", "list", "status", "doctor"}


def every_command(group, *words):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from every_command(command, *words, name)
        else:
            yield (*words, name), command


COMMANDS = dict(every_command(get_command(app)))
DRY = {words for words, command in COMMANDS.items() if any(p.name == "dry_run" for p in command.params)}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_fits_a_screen(words, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit):
        app([*words, "--help"], prog_name="evoseek")
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) <= 40
    assert max(map(len, shown)) <= 100


def test_every_command_that_does_more_than_read_has_a_dry_run():
    assert {words[-1] for words in COMMANDS.keys() - DRY} <= READING


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    """Sources for every command."""
    folder = tmp_path_factory.mktemp("material")
    row = {"question": "who is it?", "golden_answers": ["Meri"]}
    (folder / "q.jsonl").write_text(json.dumps(row) + "\n")
    (folder / "judged.jsonl").write_text(json.dumps({**row, "answer": "Meri", "correct": True}) + "\n")
    turns = [{"query": "kalo"}, {"answer": "Meri"}]
    (folder / "d.jsonl").write_text(json.dumps({**row, "turns": turns}) + "\n")
    (folder / "docs").mkdir()
    (folder / "docs" / "a.txt").write_text("The mayor of Kalo is Meri.")
    LexicalIndex.build(folder / "index", [Passage("a#0", "a", "Kalo", "The mayor of Kalo is Meri.")])
    return folder


LINES = {
    "init": "init new --documents docs",
    "demo": "demo",
    "index": "index docs new",
    "collect": "collect new.jsonl --index index --questions q.jsonl",
    "sft": "sft --run-dir new --index index --demonstrations d.jsonl",
    "train": "train --run-dir new --index index --questions q.jsonl --set questions.per_step=1",
    "propose": "propose index new.jsonl",
    "eval": "eval --index index --questions q.jsonl --out new",
    "review": "review q.jsonl --index index",
    "feedback": "feedback run --delete all",
    "ask": "ask who? --index index",
    "export": "export tiny new",
    "view": "view run --out new.html",
    "simulator collect": "simulator collect new.jsonl --index index --questions q.jsonl",
    "simulator label": "simulator label s.jsonl new.jsonl --model tiny",
    "simulator tune": "simulator tune s.jsonl new --work work",
    "simulator check": "simulator check s.jsonl --model tiny",
    "filter": "filter q.jsonl new.jsonl --judge tiny",
    "world serve": "world serve --port 0 --questions new.jsonl",
    "serve retrieval": "serve retrieval index --port 0",
    "serve agent": "serve agent tiny --index index --port 0",
    "serve mcp": "serve mcp tiny --index index",
}


@pytest.mark.parametrize("words", sorted(DRY), ids=" ".join)
def test_a_dry_run_says_what_would_be_done_and_writes_nothing(words, material, monkeypatch):
    monkeypatch.chdir(material)
    before = sorted(material.rglob("*"))
    done = RUNNER.invoke(app, [*LINES[" ".join(words)].split(), "--dry-run"])
    assert (done.exit_code, done.exception) == (0, None), done.output
    assert done.stdout.rstrip().endswith("Nothing was done (--dry-run).")
    assert sorted(material.rglob("*")) == before


READS = {name: f"{LINES[name]} --dry-run" for name in LINES if declared[name].reads}
READS |= {"search": "search index kalo", "doctor": "doctor --index index --no-probe"}


@pytest.fixture
def readings(monkeypatch):
    """How often the settings were merged and validated."""
    made = []

    def read(*given, **named):
        made.append(given)
        return read_settings(*given, **named)

    monkeypatch.setattr(sources, "read_settings", read)
    return made


@pytest.mark.parametrize("name", READS)
def test_settings_are_read_once_a_command(name, material, monkeypatch, readings):
    monkeypatch.chdir(material)
    done = RUNNER.invoke(app, READS[name].split())
    assert done.exception is None or name == "doctor", done.output
    assert len(readings) == 1


@pytest.mark.parametrize("line", ["train", "ask who?", "eval"])
def test_those_of_a_projects_run_too(line, small, readings):
    paths = {"search.index": str(small / "index"), "questions.path": str(small / "q.jsonl")}
    config = load_settings(options=paths).resolved()
    (small / "q.jsonl").write_text('{"question": "who?", "golden_answers": ["Meri"]}\n')
    (small / "reviewed.jsonl").write_text('{"question": "who is it?", "golden_answers": ["Meri"]}\n')
    with open(small / "evoseek.toml", "a") as file:
        file.write('[questions]\npath = "q.jsonl"\n[run]\nsteps = 7\n')
    run = RunDirectory(small / "run")
    run.path.mkdir()
    run.claim(config)
    (run.path / "checkpoints" / "step-000001").mkdir(parents=True)
    (run.path / "checkpoints" / "step-000001" / "state.json").write_text("{}")
    readings.clear()
    done = RUNNER.invoke(app, [*line.split(), "--dry-run"])
    assert (done.exception, len(readings)) == (None, 1), done.output


def test_the_whole_config_is_printed_with_what_differs_last(material, monkeypatch):
    monkeypatch.chdir(material)
    words = [*LINES["train"].split(), "--steps", "7", "--dry-run"]
    defaults, own = RUNNER.invoke(app, words).stdout.split("Settings that differ from the defaults:\n")
    assert "  rollout.group_size = 8\n" in defaults
    assert "  run.steps = 7\n" in own
    assert "run.steps" not in defaults


def test_a_project_is_found_or_named_and_options_win(material, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = RUNNER.invoke(app, ["init", "mine", "--documents", str(material / "docs"), "--model", "tiny"])
    assert (made.exit_code, made.exception) == (0, None)
    named = RUNNER.invoke(app, ["index", "--project", "mine", "--dry-run"])
    assert f"Index {material / 'docs'} in {tmp_path / 'mine' / 'index'}" in named.stdout
    monkeypatch.chdir("mine")
    LexicalIndex.build(Path("index"), [Passage("a#0", "a", "Kalo", "The mayor of Kalo is Meri.")])
    found = RUNNER.invoke(app, ["train", "--set", "dr_zero.iterations=1", "--dry-run"])
    assert f"Plan: dr-zero, 27 steps, in {tmp_path / 'mine' / 'run'}" in found.stdout  # 1 x (5 + 2 + 20)
    assert f"From {tmp_path / 'mine' / 'evoseek.toml'}: recipe dr-zero/tiny" in found.stderr
    asked = RUNNER.invoke(app, ["ask", "who?", "--dry-run"])
    assert "has no checkpoint yet, so the untrained model is used" in asked.stderr
    assert "Ask the policy tiny: who?" in asked.stdout
    given = ["--questions", str(material / "q.jsonl"), "--set", "questions.per_step=1"]
    other = RUNNER.invoke(app, ["train", "search-r1", *given, "--dry-run"])
    assert "Plan: search-r1, 120 steps" in other.stdout
    assert "search.index = " in other.stderr
    assert "recipe" not in other.stderr


def test_without_a_project_what_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words, missing in ((["train", "--questions", "q"], "'--run-dir'"), (["index"], "'CORPUS'")):
        error = str(RUNNER.invoke(app, words).exception)
        assert missing in error
        assert "evoseek init" in error


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A project with an index of one document."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "pump.txt").write_text("The pump is blue.")
    (tmp_path / "evoseek.toml").write_text('[project]\ndocuments = "docs"\nrun = "run"\n[search]\nindex = "index"\n')
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["index"]).exit_code == 0
    return tmp_path


@pytest.mark.parametrize(
    "words", [["search", "pump"], ["serve", "retrieval", "--dry-run"], ["serve", "agent", "--dry-run"]]
)
def test_an_index_is_searched_and_served_in_a_project_and_with_project_elsewhere(small, words, monkeypatch):
    monkeypatch.setattr("evoseek.models.machine._free_memory", lambda: 2**33)  # a dry run shows it, and it changes
    done = CliRunner().invoke(app, words)
    assert (done.exception, "pump" in done.stdout or str(small / "index") in done.stdout) == (None, True)
    monkeypatch.chdir("/")
    again = CliRunner().invoke(app, [*words, "--project", str(small)])
    assert (again.exception, again.stdout) == (None, done.stdout)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["index"], "the query is missing"),
        (["blue", "pump", "now"], 'in quotes, as in "blue pump now"'),
        (["nowhere", "pump"], "nowhere"),
    ],
)
def test_words_that_are_no_query_are_refused(small, words, said):
    assert said in str(CliRunner().invoke(app, ["search", *words]).exception)


IN_PROJECT = (
    *("index", "status", "view", "train", "ask x", "search x", "eval", "collect x.jsonl"),
    *("serve agent", "serve mcp", "serve retrieval"),
)


@pytest.mark.parametrize("words", IN_PROJECT)
def test_every_command_names_the_table_that_a_misspelt_one_stands_for(tmp_path, monkeypatch, words):
    (tmp_path / "evoseek.toml").write_text('[project]\ndocuments = "docs"\nrun = "run"\n[serch]\nindex = "index"\n')
    monkeypatch.chdir(tmp_path)
    said = str(CliRunner().invoke(app, words.split()).exception)
    assert "unknown setting serch (did you mean search?)" in said


def test_commands_that_need_an_index_or_a_run_say_how_to_name_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "Which index? " in str(CliRunner().invoke(app, ["serve", "retrieval"]).exception)
    (tmp_path / "evoseek.toml").write_text('[project]\ndocuments = "docs"\n')
    assert "add the line `index = " in str(CliRunner().invoke(app, ["serve", "retrieval"]).exception)
    assert "add the line `run = " in str(CliRunner().invoke(app, ["view"]).exception)
