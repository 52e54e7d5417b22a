import json

import pytest
from typer.testing import CliRunner

from evoseek.cli.main import app
from evoseek.errors import ConfigError, RunError


@pytest.fixture
def run(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(json.dumps({"run": {"system": "search-r1"}}))
    return tmp_path / "run"


def view(*arguments):
    result = CliRunner().invoke(app, ["view", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def test_the_page_is_in_the_run(run):
    assert f"Wrote {run}/view.html. Open it in a browser" in view(run)
    assert (run / "view.html").read_text().startswith("<!doctype html>")


def test_two_runs_and_another_place(run, tmp_path):
    view(run, run, "--out", tmp_path / "pages" / "two.html")
    name = f"{tmp_path.name} (search-r1)"  # of the project that holds the run
    assert f"{name} and {name}" in (tmp_path / "pages" / "two.html").read_text()


def test_the_list_in_the_terminal(run):
    assert "0 trajectories." in view(run, "--terminal")
    assert not (run / "view.html").exists()


def test_options_of_the_other_form_are_refused(run):
    with pytest.raises(ConfigError, match="--out and --open concern the page"):
        view(run, "--terminal", "--open")


def test_no_run_is_an_error(tmp_path):
    with pytest.raises(RunError, match="There is no run"):
        view(tmp_path / "runs" / "mine")
