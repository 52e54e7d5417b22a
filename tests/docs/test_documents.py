"""The commands with which a new user asks documents, and README's Python, as README, docs/index.md and
docs/documents.md print them. What trains, scores or serves for long is only planned."""

from pathlib import Path
from runpy import run_path

import pytest
from typer.testing import CliRunner

from evoseek.cli.init import ProjectOptions, project_text
from evoseek.cli.main import app
from evoseek.questions.questions import save_questions
from evoseek.search.lexical import LexicalIndex
from evoseek.world.world import World

ROOT = Path(__file__).parents[2]
PAGES = run_path(str(Path(__file__).with_name("pages.py")))
PLANNED = {"train": "--dry-run", "eval": "--dry-run", "serve": "--dry-run", "doctor": "--no-probe"}
ORDER = {
    "README.md": ["init", "index", "ask", "doctor", "train", "eval", "serve"],
    "docs/index.md": ["init", "index", "ask"],
    "docs/documents.md": ["init", "index", "ask", "train", "eval", "serve"],
}


def commands_of(page, number):
    """The first commands of a page from `evoseek init` on."""
    words = [words[1:] for words in PAGES["commands"]((ROOT / page).read_text()) if words[0] == "evoseek"]
    begin = next(at for at, command in enumerate(words) if command[0] == "init")
    return words[begin : begin + number]


@pytest.fixture
def documents(tmp_path, monkeypatch):
    """A folder with documents, which is the current one."""
    (tmp_path / "my-documents").mkdir()
    text = "# Warranty\n\nThe warranty covers faults in material and workmanship for two years.\n"
    (tmp_path / "my-documents" / "warranty.md").write_text(text)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("page", ORDER)
def test_the_commands_in_their_order(page, documents, monkeypatch):
    said = {}
    for words in commands_of(page, len(ORDER[page])):
        named = ["tiny" if word == "MODEL" else word for word in words]
        named += ["--model", "tiny"] if words[0] == "init" and "--model" not in words else []
        named += [PLANNED[words[0]]] if words[0] in PLANNED else []
        done = CliRunner().invoke(app, named)
        said[words[0]] = (done.exit_code, done.output + str(done.exception or ""))
        if words[0] == "init":
            monkeypatch.chdir("my-project")
    assert list(said) == ORDER[page]
    assert all(said[name][0] == 0 for name in said if name in ("init", "index", "train", "serve"))
    assert all("Nothing was done" in said[name][1] for name in said if name in ("train", "serve"))
    assert "No questions were given" in said.get("eval", ("", "No questions were given"))[1]  # nothing was trained yet
    assert "Searches:" in said["ask"][1]
    found = CliRunner().invoke(app, ["search", "index", "what the warranty covers"]).output
    assert "faults in material" in found
    assert "warranty.md" in found


def test_the_project_file_is_the_one_that_init_writes():
    page = (ROOT / "docs" / "documents.md").read_text()
    (shown,) = [text for language, text in PAGES["blocks"](page) if language == "toml"]
    model = "Qwen/Qwen2.5-1.5B-Instruct"
    options = ProjectOptions(Path("/home/me/my-documents"), model, None, "search-r1", rank=16, from_instruct=True)
    written = project_text(options, Path("/home/me/my-project"))
    assert set(shown.splitlines()) <= set(written.splitlines())


def test_the_python_of_readme_asks_trains_and_evaluates(tmp_path, monkeypatch, capsys):
    """With the tiny policy, one step, and questions about a generated world in place of the documents."""
    monkeypatch.chdir(tmp_path)
    world = World.generate(0, 200, "train")
    LexicalIndex.build(tmp_path / "my-project" / "index", world.passages())
    save_questions(tmp_path / "my-questions.jsonl", world.questions(2, seed=0))
    (tmp_path / "one-step.toml").write_text(
        '[questions]\npath = "my-questions.jsonl"\nper_step = 1\n[rollout]\ngroup_size = 2\n[run]\nsteps = 1\n'
    )
    (code,) = [text for language, text in PAGES["blocks"]((ROOT / "README.md").read_text()) if language == "python"]
    for of_readme, here in (("Qwen/Qwen2.5-1.5B-Instruct", "tiny"), ("search-r1/instruct", "one-step.toml")):
        assert code.count(of_readme) == 1
        code = code.replace(of_readme, here)
    exec(code, {})
    assert (tmp_path / "runs" / "mine" / "checkpoints" / "step-000001").is_dir()
    assert capsys.readouterr().out.splitlines()
