import os
import subprocess
import sys

import pytest
import typer

from evoseek.assembly.sources import load_settings
from evoseek.cli.main import app, main
from evoseek.config.registry import KINDS

PROGRAM = """
import atexit, sys
atexit.register(print, "taken down")
from evoseek.cli.main import main
sys.argv = ["evoseek", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize(("words", "status"), [(["--help"], 0), (["train", "nothing", "--run-dir", "nowhere"], 2)])
@pytest.mark.parametrize("size", ["1", "2"])
def test_processes_of_several_end_at_once_with_their_status_and_all_that_they_said(tmp_path, words, status, size):
    """Taking down the interpreter may abort one that talked to others; one that is alone ends as usual."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        env={**os.environ, "WORLD_SIZE": size},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == status
    assert ("taken down" in done.stdout) == (size == "1")
    assert "Usage" in done.stdout if status == 0 else "There is no system" in done.stderr


HOLDS = """
import sys
class Held:
    def __del__(self):
        print("freed")
held = Held()
held.itself = held
from evoseek.cli.main import main
sys.argv = ["evoseek", "--version"]
main()
"""


def test_a_command_that_ends_frees_everything_or_extension_modules_report_leaks():
    """Modules made with nanobind, as triton is, print every object that outlives the interpreter."""
    done = subprocess.run([sys.executable, "-c", HOLDS], capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()[1:], done.stderr) == (0, ["freed"], "")


@pytest.fixture
def shown(capsys, monkeypatch):
    """What `evoseek ... --help` says, in one line."""

    def show(*words):
        monkeypatch.setattr("sys.argv", ["evoseek", *words, "--help"])
        monkeypatch.setenv("COLUMNS", "400")
        with pytest.raises(SystemExit):
            main()
        return " ".join(capsys.readouterr().out.split())

    return show


@pytest.mark.parametrize(
    ("words", "offered"),
    [("evoseek in", "init index"), ("evoseek train --conf", "--config"), ("evoseek serve a", "agent")],
)
def test_a_shell_completes_commands_and_options(tmp_path, words, offered):
    """By what `evoseek --install-completion` puts into its start-up file."""
    asked = {"_EVOSEEK_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    command = [sys.executable, "-c", PROGRAM.replace("*sys.argv[1:]", "")]
    done = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.split() == [*offered.split(), "taken", "down"], done.stderr


def test_help_names_every_system_and_the_corpus_by_both_its_names(shown):
    text = shown("train")
    assert all(system in text for system in KINDS["system"].parts)
    assert "--index,--corpus" in text.replace(", ", ",")


def test_help_names_the_settings_of_the_judge(shown):
    for words in (("filter",), ("simulator", "label")):
        assert "judge.model" in shown(*words)


def test_help_names_the_setting_of_the_model_that_is_asked(shown):
    assert "[answerer]" in shown("ask")


def test_help_of_propose_says_what_is_verified(shown):
    text = shown("propose")
    assert "verification.readings" in text
    assert load_settings(fallback="ssp").verification.readings
    assert not load_settings(system="dr-zero").verification.readings


def test_a_config_file_names_the_system_if_the_command_does_not(tmp_path, capsys, monkeypatch):
    (tmp_path / "c.toml").write_text("[run]\nsystem = 'ssp'\n[proposer]\ntemperature = 0.5\n")
    monkeypatch.setattr(
        "sys.argv", ["evoseek", "train", "--run-dir", str(tmp_path / "r"), "--config", f"{tmp_path}/c.toml"]
    )
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "in ssp one policy plays both roles" in capsys.readouterr().err


def commands(command, *words):
    """Every command of the command line and of its groups: the words that call it, and click's object."""
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, *words, name)


ALL = list(commands(typer.main.get_command(app)))


@pytest.mark.parametrize(("words", "command"), ALL, ids=[" ".join(words) or "evoseek" for words, _ in ALL])
def test_help_shows_every_text_as_it_was_written(shown, words, command):
    """Square brackets, as of [answerer], were taken for a style and swallowed."""
    texts = [command.help, *(getattr(parameter, "help", None) for parameter in command.params)]
    text = "".join(shown(*words).split())  # lines are also broken at hyphens
    for expected in filter(None, texts):
        assert "".join(expected.split()) in text


def test_one_of_them_has_brackets(shown):
    assert "the model of [answerer]; print the answer" in shown("ask")
