import subprocess
from pathlib import Path

import pytest

from tools import wheel

PYTHON = """#!/bin/sh
case "$*" in
  *"!= '3.12'"*) exit 0 ;;
  *"!= "*) exit 1 ;;
  "-m venv venv") mkdir -p venv/bin; cp "$0" venv/bin/python; cp "$0" venv/bin/evoseek ;;
  *"pip install"*) echo "$*" >> installed ;;
  crash) exit 3 ;;
esac
"""


@pytest.fixture
def python(tmp_path, monkeypatch):
    """An interpreter that says it is 3.12, under the names of two versions."""
    for version in ("3.12", "3.13"):
        (path := tmp_path / f"python{version}").write_text(PYTHON)
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    return str(tmp_path / "python3.12")


def test_an_interpreter_is_found_if_it_is_of_its_version(python):
    assert wheel.found(["3.12", "3.13", "3.99"]) == {"3.12": python}


def test_those_of_pyenv_are_found(python, tmp_path):
    there = tmp_path / ".pyenv" / "versions" / "3.12.1" / "bin"
    there.mkdir(parents=True)
    Path(python).rename(there / "python3.12")
    assert wheel.found(["3.12"]) == {"3.12": str(there / "python3.12")}


@pytest.mark.parametrize(("steps", "failed"), [([["evoseek", "works"]], ""), ([["evoseek", "crash"]], "evoseek crash")])
def test_a_command_that_fails_is_named_and_the_environment_is_removed(python, tmp_path, steps, failed, monkeypatch):
    made = tmp_path / "dist" / "evoseek-1-py3-none-any.whl"
    ran = []
    run = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda words, **more: ran.append(words) or run(words, **more))
    tried = wheel.attempt("3.12", python, made, ["torch==2"], steps)
    assert (tried.version, tried.failed) == ("3.12", failed)
    assert [words[-1] for words in ran] == ["venv", "torch==2", str(made), "check", steps[0][-1]]
    assert list((tmp_path / "dist").iterdir()) == []
