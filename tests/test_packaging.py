"""What is installed, everything under src/evoseek and nothing else, and that CI runs what one runs at home.

Building a wheel takes a network: `make wheel` does.
"""

import ast
import configparser
import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from runpy import run_path

import pytest
import typer
import yaml

import evoseek
from evoseek.cli.main import app

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


DECLARED = [
    *PROJECT["project"]["dependencies"],
    *(one for extra in PROJECT["project"]["optional-dependencies"].values() for one in extra),
]
VERSIONS = run_path(str(ROOT / "tools" / "wheel.py"))["VERSIONS"]
ON_DISK = ("safetensors", "numpy", "tantivy", "tokenizers", "pydantic", "transformers", "torch", "peft", "gguf")


def normal(requirement):
    """The name in a requirement, or of a distribution, as package indexes write it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!; ]", requirement)[0]).lower()


def test_what_is_imported_is_declared():
    """Another package may bring it today, and not tomorrow."""
    imported = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                imported |= {name.name.split(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.split(".")[0])
    distributions, declared = packages_distributions(), set(map(normal, DECLARED))
    others = imported - sys.stdlib_module_names - {"evoseek"}
    assert len(others) > 20
    assert {one for one in others if declared.isdisjoint(map(normal, distributions.get(one, [one])))} == set()


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.name
)
def test_a_page_that_installs_without_dependencies_says_what_pip_check_then_says(page):
    text = page.read_text()
    assert "--no-deps" not in text or "`pip check`" in text


@pytest.mark.parametrize("name", ON_DISK)
def test_a_package_whose_format_is_on_disk_has_an_upper_bound(name):
    assert all("<" in one for one in DECLARED if normal(one) == name)
    assert name in map(normal, DECLARED)


def test_what_is_said_of_the_package_agrees():
    """The version in three files, and the Pythons on which `make wheels` tries it."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {PROJECT["project"]["version"], cited["version"]} == {evoseek.__version__}
    assert (cited["abstract"], cited["license"]) == (PROJECT["project"]["description"], PROJECT["project"]["license"])
    named = [line.rpartition(" ")[2] for line in PROJECT["project"]["classifiers"] if ":: Python :: 3." in line]
    assert named == list(VERSIONS)


def test_every_dependency_has_a_lower_bound_and_every_update_is_asked_for():
    assert [one for one in DECLARED if normal(one) != "evoseek" and ">=" not in one] == []
    updates = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())["updates"]
    folders = [folder for one in updates for folder in one.get("directories", [one.get("directory")])]
    assert all(list(ROOT.glob(f"{folder.strip('/') or '.'}/pyproject.toml")) for folder in folders)


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
    assert jobs["wheel"]["strategy"]["matrix"]["python-version"] == list(VERSIONS)
    night = yaml.load((ROOT / ".github" / "workflows" / "night.yml").read_text(), yaml.BaseLoader)
    assert night["jobs"]["night"]["steps"][-1]["run"] == "make night"


def test_every_commit_is_checked_as_make_lint_checks():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    lint = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M)[1]
    assert [hook["entry"] for hook in hooks] == [
        line.strip().replace("$(BIN)", ".venv/bin") for line in lint.splitlines()
    ]


@pytest.mark.parametrize("project", ["", "packages/tinker", "packages/verifiers"])
def test_a_distribution_has_the_version_of_the_newest_changes(project):
    newest = re.search(r"^## (\S+) - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.M)[1]
    stated = tomllib.loads((ROOT / project / "pyproject.toml").read_text())["project"]["version"]
    assert (stated, evoseek.__version__) == (newest, newest)


def instructions(file):
    """The instructions of a Dockerfile, each with its words."""
    lines = re.sub(r"\\\n", " ", file.read_text()).splitlines()
    return [tuple(line.split(maxsplit=1)) for line in lines if line.strip() and not line.startswith("#")]


def check_command(words):
    """Parse a command line of evoseek without running it: a wrong option ends it."""
    group, *rest = words
    command = typer.main.get_command(app).commands[group].commands[rest[0]]
    command.make_context("evoseek", rest[1:])


def test_the_container_is_slim_without_root_with_a_check_of_its_health_and_a_command_that_exists():
    parts = instructions(ROOT / "deploy" / "Dockerfile")
    assert {words.split()[0] for name, words in parts if name == "FROM"} == {"python:3.12-slim"}
    names = [name for name, _ in parts]
    assert int(dict(parts)["USER"]) > 0
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert names.count("USER") == 1
    assert re.search(r"/(\w+)'", dict(parts)["HEALTHCHECK"])[1] == "health"
    (extras,) = re.findall(r"'\.\[(.*?)\]'", (ROOT / "deploy" / "Dockerfile").read_text())
    assert set(extras.split(",")) <= PROJECT["project"]["optional-dependencies"].keys()
    copied = [words.split()[:-1] for name, words in parts if name == "COPY" and not words.startswith("--from")]
    allowed = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
    assert {f"!{one}" for each in copied for one in each} == {line for line in allowed if line.startswith("!")}
    assert all((ROOT / one).exists() for each in copied for one in each)
    check_command(json.loads(dict(parts)["CMD"]))


def test_the_unit_starts_and_reloads_a_server_that_exists_as_its_own_user():
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str
    unit.read(ROOT / "deploy" / "evoseek.service")
    service = unit["Service"]
    check_command(service["ExecStart"].split()[1:])
    assert service["User"] != "root"
    assert service["ExecReload"].endswith("-HUP $MAINPID")
    assert int(service["TimeoutStopSec"]) > 30 + 5  # --drain, and the errors of what is cancelled then
