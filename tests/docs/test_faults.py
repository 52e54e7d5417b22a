"""docs/faults.md: each fault has a public report, and a test that exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in (ROOT / "docs" / "faults.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| The fault ")
]


def names_in(path: Path) -> set[str]:
    """The functions and classes of a file, those in classes included."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}


def test_there_are_rows() -> None:
    assert len(ROWS) > 50


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_a_fault_has_its_report_and_tests_that_exist(row: list[str]) -> None:
    fault, report, tests = row
    assert fault.endswith(".")
    assert re.search(r"\]\(https://github\.com/[\w.-]+/[\w.-]+(/issues/\d+)?\)", report)
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", tests)
    assert len(named) == tests.count("`") / 2 > 0
    for path, name in named:
        assert name.lower().startswith("test")
        assert name in names_in(ROOT / path), f"{path}::{name}"
