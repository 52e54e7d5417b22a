"""The README's map names every source file and nothing else, and its commands are the ones that CI runs."""

import re
import tomllib
from pathlib import Path

import pytest
from evoseek.config import Config

from evoseek.recipes.catalogue import FOLDER, recipes
from evoseek.runs import flatten

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = sorted(path.relative_to(ROOT) for folder in (ROOT / "docs", FOLDER) for path in folder.rglob("*.md"))


def test_map_lists_every_file_once():
    block = README.split("<!-- map -->")[1]
    listed, folder = [], ""
    for line in block.splitlines():
        if match := re.match(r"^    ([\w/]+)/(?:\s|$)", line):
            folder = match[1] + "/"
        elif match := re.match(r"^(    |      )(\w+\.py)\s+\S", line):
            listed.append((folder if len(match[1]) == 6 else "") + match[2])
    package = ROOT / "src" / "evoseek"
    files = {path.relative_to(package).as_posix() for path in package.rglob("*.py")}
    assert sorted(listed) == sorted(name for name in files if not name.endswith("__init__.py"))


def test_test_command_is_what_ci_runs():
    command = re.search(r"Test: `([^`]+)`", README)[1]
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith(f"\n{command}")


def test_make_targets_in_the_documents_exist():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    for name in ("README.md", "CONTRIBUTING.md"):
        assert set(re.findall(r"(?:^    |`)make ([\w-]+)", (ROOT / name).read_text(), re.M)) <= targets


def test_tiny_recipe_lists_every_setting_with_its_default():
    text = (FOLDER / "search-r1" / "tiny.toml").read_text()
    given = flatten(tomllib.loads(re.sub(r"^# (?=\w+ = )", "", text, flags=re.M)))
    defaults = flatten(Config().model_dump(mode="json"))
    assert given.keys() == defaults.keys()
    assert {key: value for key, value in given.items() if defaults[key] is not None} == {
        key: value for key, value in defaults.items() if value is not None
    }


@pytest.mark.parametrize(
    ("section", "key", "words"),
    [("browse", "deny", "not through a proxy"), ("asked", "model", "one that ends its turns (an instruct model)")],
)
def test_what_a_setting_warns_of_stands_in_the_tiny_recipe_too(section, key, words):
    text = (FOLDER / "search-r1" / "tiny.toml").read_text()
    told = re.search(rf"^{key} = .*", text.partition(f"\n[{section}]")[2], re.M)[0]
    settings = type(getattr(Config(), section))
    assert words in told
    assert words in settings.model_fields[key].description


def test_recipes_are_valid():
    for path in FOLDER.rglob("*.toml"):
        Config.model_validate(tomllib.loads(path.read_text()))


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", *map(str, PAGES)])
def test_files_that_a_page_names_are_there(page):
    """From the root, beside the page, or in the package; runs and demo/ are made by commands."""
    text = (ROOT / page).read_text()
    for name in re.findall(r"[\w./-]+\.(?:py|toml|md)\b", text):
        if name.startswith(("runs/", "demo/")) or not re.search(r"\w/\w", name):
            continue
        places = (ROOT / name, (ROOT / page).parent / name, ROOT / "src" / "evoseek" / name)
        assert any(place.exists() for place in places), name


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", *map(str, PAGES)])
def test_recipes_that_a_page_names_are_there(page):
    assert set(re.findall(r"--config ([\w-]+/[\w.-]+)", (ROOT / page).read_text())) <= recipes().keys()
