"""The budgets of the house. A person raises a number by hand, in a commit of its own that says why."""

from pathlib import Path
from runpy import run_path

import pytest

ROOT = Path(__file__).parents[1]
HOUSE = run_path(str(ROOT / "bench" / "house.py"))

BUDGETS = {
    "src, total": 52_100,
    "files": 291,
    "rooms": 32,
    "arrows": 267,
    "settings": 178,
    "commands": 27,
    "docs, words": 28_000,
}
SHARED_NAMES: set[str] = set()
"""Names of several classes, where one name is right: each with its reason."""


@pytest.fixture(scope="module")
def sizes():
    return HOUSE["sizes"](ROOT)


@pytest.mark.parametrize("name", BUDGETS)
def test_the_house_keeps_its_budget(sizes, name):
    assert sizes[name] <= BUDGETS[name], f"{name}: take something away (AGENTS.md), or a person raises the number"


def test_a_class_name_has_one_meaning():
    twice = {name for name, number in HOUSE["class_names"](ROOT).items() if number > 1}
    assert twice <= SHARED_NAMES, "rename one of them"
    assert twice >= SHARED_NAMES, "take these off the list"
