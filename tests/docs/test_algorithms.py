"""docs/algorithms.md names what exists, and all that is public in credit and loss."""

import ast
import re
from pathlib import Path

import pytest

from evoseek.config.registry import KINDS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "algorithms.md").read_text()
REFERENCES = sorted(set(re.findall(r"`([\w/.]+\.py)::(\w+)`", TEXT)))
SEAM = {"base.py", "settings.py"}  # what goes in and comes out: no algorithm


def names_in(path: Path) -> set[str]:
    """Functions and classes that a file defines at its top."""
    body = ast.parse(path.read_text()).body
    return {node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}


@pytest.mark.parametrize(("path", "name"), REFERENCES, ids="::".join)
def test_what_the_tables_name_exists(path: str, name: str) -> None:
    assert name in names_in(ROOT / path)


def test_every_path_is_one_that_was_checked_and_every_row_has_a_function_and_a_test() -> None:
    assert len(REFERENCES) > 60
    for path in re.findall(r"`((?:src|tests)/[\w/.]+)", TEXT):
        assert (ROOT / path).exists(), path
    rows = [line for line in TEXT.splitlines() if line.startswith("|") and "::" in line]
    assert all("`src/" in row and "`tests/" in row for row in rows)


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in ("credit", "loss") for name in KINDS[kind].parts])
def test_every_credit_and_loss_that_can_be_chosen_has_a_row_with_its_name(kind: str, name: str) -> None:
    section = re.split(rf"src/evoseek/{kind}(?:\.py)?`\n", TEXT)[1].split("\n## ")[0]
    assert any(f"`{name}`" in line.split("|")[1] for line in section.splitlines() if "::" in line)


@pytest.mark.parametrize("package", ["credit", "loss"])
def test_no_algorithm_is_missing(package: str) -> None:
    """Every public function and class, but for settings, parts (their rows have the parts' names), and helpers."""
    named = {name for _, name in REFERENCES} | {path.partition(":")[2] for path in KINDS[package].parts.values()}
    named |= {"CreditSettings", "Signal", "wrapped", "is_relative", "needs_critic", "credits_with_critic"}
    named |= {"advantages_of", "estimates_of"}  # which call a credit and check what it gives
    source = ROOT / "src" / "evoseek"
    for path in (*source.glob(f"{package}.py"), *(source / package).glob("*.py")):
        if path.name not in SEAM:
            missing = {name for name in names_in(path) if not name.startswith("_")} - named
            assert not missing, f"{path.name}: {missing}"


@pytest.mark.parametrize("module", ["selfplay/proposer_reward", "reward/shaping"])
def test_no_reward_of_self_play_is_missing(module: str) -> None:
    """Of the two ways to the format reward, one is enough; what helps to compute it is no reward."""
    helpers = {"FormatScore", "unshaped"}
    public = {name for name in names_in(ROOT / "src" / "evoseek" / f"{module}.py") if not name.startswith("_")}
    assert public - helpers <= {name for _, name in REFERENCES}


def test_short_names_in_the_tables_are_those_of_the_long_ones() -> None:
    """`raw_advantages` and its like, without a path, stand for something that a path was given for."""
    section = TEXT.split("## What makes up an algorithm")[1].split("## ")[0]
    assert set(re.findall(r"`(\w+)`", section)) <= {name for _, name in REFERENCES}
