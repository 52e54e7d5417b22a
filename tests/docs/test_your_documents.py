"""The first block of docs/your-documents.md, typed by a new user. What trains, scores or serves is only planned."""

from pathlib import Path
from runpy import run_path

import pytest
from typer.testing import CliRunner

from evoseek.cli.init import ProjectOptions, project_text
from evoseek.cli.main import app

PAGE = (Path(__file__).parents[2] / "docs" / "your-documents.md").read_text()
PAGES = run_path(str(Path(__file__).with_name("pages.py")))
COMMANDS = [words[1:] for words in PAGES["commands"](PAGE) if words[0] == "evoseek"][:6]
ONLY_PLANNED = ("train", "eval", "serve")


@pytest.fixture
def documents(tmp_path, monkeypatch):
    """A folder with documents, which is the current one."""
    (tmp_path / "my-documents").mkdir()
    text = "# Warranty\n\nThe warranty covers faults in material and workmanship for two years.\n"
    (tmp_path / "my-documents" / "warranty.md").write_text(text)
    monkeypatch.chdir(tmp_path)


def test_the_commands_in_their_order(documents, monkeypatch):
    said = {}
    for words in COMMANDS:
        named = ["tiny" if word == "MODEL" else word for word in words]
        done = CliRunner().invoke(app, named + (["--dry-run"] if words[0] in ONLY_PLANNED else []))
        said[words[0]] = (done.exit_code, done.output + str(done.exception or ""))
        if words[0] == "init":
            monkeypatch.chdir("my-project")
    assert list(said) == ["init", "index", "ask", "train", "eval", "serve"]
    assert [said[name][0] for name in ("init", "index", "train", "serve")] == [0, 0, 0, 0]
    assert all("Nothing was done" in said[name][1] for name in ("train", "serve"))
    assert "No questions were given" in said["eval"][1]  # nothing was trained, so self-play has written none
    assert "Searches:" in said["ask"][1]
    found = CliRunner().invoke(app, ["search", "index", "what the warranty covers"]).output
    assert "faults in material" in found
    assert "warranty.md" in found


def test_the_project_file_is_the_one_that_init_writes():
    (shown,) = [text for language, text in PAGES["blocks"](PAGE) if language == "toml"]
    options = ProjectOptions(Path("/home/me/my-documents"), "Qwen/Qwen2.5-3B-Instruct", None, "dr-zero")
    written = project_text(options, Path("/home/me/my-project"))
    assert set(shown.splitlines()) <= set(written.splitlines())
