"""What is installed, everything under src/evoseek and nothing else, and that CI runs what one runs at home.

Building a wheel takes a network: `make wheel` does.
"""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "evoseek"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_wheel_is_made_of_the_whole_package():
    """Nothing is left out of it but what git ignores, which hatchling leaves out too."""
    assert PROJECT["tool"]["hatch"]["build"] == {"targets": {"wheel": {"packages": ["src/evoseek"]}}}
    files = [path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")]
    names = [path.relative_to(PACKAGE).as_posix() for path in files]
    assert {"py.typed", "recipes/dr-zero/3b.toml", "recipes/dr-zero/README.md"} <= set(names)
    assert any(name.endswith("model.safetensors") for name in names)
    command = ["git", "-C", str(ROOT), "check-ignore", "--no-index", "--stdin"]
    done = subprocess.run(command, input="\n".join(map(str, files)), capture_output=True, text=True)
    if done.returncode == 128:
        pytest.skip("not a git checkout")
    assert done.stdout.splitlines() == []


def test_no_symbolic_link_takes_the_place_of_a_file():
    assert [path for path in PACKAGE.rglob("*") if path.is_symlink()] == []


def test_the_workflow_runs_the_targets_that_the_pages_name_on_the_oldest_python_and_a_newer_one():
    workflow = yaml.load((ROOT / ".github" / "workflows" / "ci.yml").read_text(), yaml.BaseLoader)
    assert workflow["on"] == ["push", "pull_request"]
    jobs = workflow["jobs"]
    command = re.search(r"Test: `([^`]+)`", (ROOT / "README.md").read_text())[1]
    run = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in jobs.items()}
    assert run == {"lint": ["make lint"], "test": [command], "wheel": ["make wheel"]}
    versions = jobs["test"]["strategy"]["matrix"]["python-version"]
    assert (PROJECT["project"]["requires-python"], versions) == (f">={versions[0]}", ["3.11", "3.13"])


def test_every_commit_is_checked_as_make_lint_checks():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    lint = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M)[1]
    assert [hook["entry"] for hook in hooks] == [
        line.strip().replace("$(BIN)", ".venv/bin") for line in lint.splitlines()
    ]
