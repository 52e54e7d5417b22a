"""What README and the other pages name is there, and the generated pages are those of the code."""

import re
from pathlib import Path
from runpy import run_path

import pytest

from evoseek.recipes.catalogue import FOLDER, recipes
from evoseek.reference import settings_of
from evoseek.registry import KINDS
from evoseek.run import check_settings_of_run
from evoseek.settings import check_settings
from evoseek.training.given import gather

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = sorted(path.relative_to(ROOT) for folder in (ROOT / "docs", FOLDER) for path in folder.rglob("*.md"))


@pytest.mark.parametrize("name", ["map", "settings"])
def test_a_generated_page_is_the_one_of_the_code(name):
    made = run_path(str(ROOT / "docs" / f"{name}.py"))["page"]()
    assert (ROOT / "docs" / f"{name}.md").read_text() == made, f"run `python docs/{name}.py`"


def test_every_setting_has_a_sentence():
    for system in KINDS["system"].parts:
        for setting in settings_of("system", system):
            assert setting.sentence.endswith("."), f"{setting.name} of {system} has no sentence"


def test_test_command_is_what_ci_runs():
    command = re.search(r"Test: `([^`]+)`", README)[1]
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith(f"\n{command}")


def test_make_targets_in_the_documents_exist():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    for name in ("README.md", "CONTRIBUTING.md"):
        assert set(re.findall(r"(?:^    |`)make ([\w-]+)", (ROOT / name).read_text(), re.M)) <= targets


def test_recipes_are_valid():
    for name in recipes():
        settings = gather(Path(name)).read()
        check_settings(settings)
        check_settings_of_run(settings)


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
