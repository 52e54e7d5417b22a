"""What is installed: everything under src/evoseek, and nothing else. (Building a wheel takes a network.)"""

import subprocess
import tomllib
from pathlib import Path

import pytest

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
