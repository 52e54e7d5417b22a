"""The picture in docs/architecture.md is the one that the code's imports give."""

from pathlib import Path
from runpy import run_path

DOCS = Path(__file__).parents[2] / "docs"
SCRIPT = run_path(str(DOCS / "architecture.py"))


def test_the_picture_is_the_one_of_the_code():
    page = (DOCS / "architecture.md").read_text()
    assert page == SCRIPT["redrawn"](page), "run `python docs/architecture.py`"


def test_every_package_is_in_the_picture():
    packages = {path.parent.name for path in (DOCS.parent / "src" / "evoseek").glob("*/__init__.py")}
    assert packages <= {*SCRIPT["imports"](), *SCRIPT["FOUNDATION"].split(", ")}


def test_arrows_that_follow_from_others_are_left_out():
    graph = {"a": {"b", "c", "d"}, "b": {"c"}, "c": {"d"}, "d": set()}
    assert SCRIPT["reduced"](graph) == {"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": set()}
    assert SCRIPT["picture"]({"a": {"b"}, "b": set()}) == "```mermaid\nflowchart TD\n    a --> b\n```\n"


def test_imports_are_found_wherever_they_stand(tmp_path):
    file = tmp_path / "file.py"
    file.write_text("from evoseek.search.web.http import get\n\ndef f():\n    import evoseek.loss.kl, json\n")
    assert sorted(SCRIPT["imported"](file)) == ["loss", "search"]
