import tomllib

import pytest
from typer.testing import CliRunner

from evoseek.cli.main import app
from evoseek.training.given import gather


@pytest.fixture
def init(tmp_path, monkeypatch):
    """`init(*words)`: what it printed, and the file that it wrote."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "q.jsonl").write_text("")

    def run(*words, input=None):
        done = CliRunner().invoke(app, ["init", *words], input=input)
        file = tmp_path / (words[0] if words and not words[0].startswith("-") else ".") / "evoseek.toml"
        return done, file

    return run


def test_with_the_defaults_it_writes_settings_that_are_valid(init, tmp_path):
    done, file = init("--yes")
    assert done.exit_code == 0
    tree = tomllib.loads(file.read_text())
    assert tree["project"] == {"documents": "docs", "run": "run", "recipe": "dr-zero/tiny"}
    assert (tree["run"], tree["policy"]) == ({"system": "dr-zero"}, {"model": "tiny"})
    assert gather(file).read(light=True).search.index == str(tmp_path / "index")
    assert "reads nothing but generated worlds" in done.stdout
    assert "evoseek doctor\n  evoseek index\n  evoseek train\n  evoseek eval" in done.stdout
    assert len(file.read_text().splitlines()) < 25


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--model", "smollm2-135m"], {"recipe": "dr-zero/smollm2", "system": "dr-zero"}),
        (["--model", "Qwen/Qwen2.5-3B-Instruct", "--system", "ssp"], {"recipe": "ssp/3b", "system": "ssp"}),
        (["--model", "acme/model"], {"recipe": None, "system": "dr-zero"}),
        (["--questions", "q.jsonl"], {"recipe": "search-r1/tiny", "system": "search-r1", "questions": "q.jsonl"}),
    ],
)
def test_the_recipe_follows_system_and_model(init, words, expected, monkeypatch):
    monkeypatch.setattr("evoseek.cli.settings.find_policy", lambda name: name)
    done, file = init("mine", "--documents", "docs", "--yes", *words)
    assert done.exception is None
    tree = tomllib.loads(file.read_text())
    assert tree["project"].get("recipe") == expected["recipe"]
    assert tree["run"]["system"] == expected["system"]
    if name := expected.get("questions"):
        assert tree["questions"]["path"].endswith(f"/{name}")  # outside the project: absolute


def test_an_endpoint_is_asked_and_not_trained(init):
    done, file = init("--endpoint", "qwen@http://localhost:8000/v1", "--yes")
    tree = tomllib.loads(file.read_text())
    assert tree["asked"] == {"model": "qwen", "base_url": "http://localhost:8000/v1"}
    assert "evoseek train" not in done.stdout
    error = str(CliRunner().invoke(app, ["train"]).exception)
    assert "asks qwen, a model behind an endpoint, which is not trained here" in error


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--documents", "dosc"], "There is nothing at dosc. Did you mean docs?"),
        (["docs/inside", "--documents", "docs"], "lies in the documents"),
        (["--endpoint", "http://x"], "expected NAME@URL"),
        (["--model", "tiny", "--endpoint", "a@http://x"], "Give one of them"),
        (["--system", "dr-zer"], "Did you mean dr-zero?"),
        (["--model", "./nowhere"], "there is no such directory"),
    ],
)
def test_what_a_later_command_would_refuse_is_refused(init, words, error):
    done, file = init(*words, "--yes")
    assert error in str(done.exception)
    assert not file.exists()


def test_a_project_is_not_overwritten(init):
    init("--yes")
    done, file = init("--yes", "--model", "tiny-reader")
    assert "There is a project" in str(done.exception)
    assert 'model = "tiny"' in file.read_text()
