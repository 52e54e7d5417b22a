"""The picture in docs/architecture.md is the one that the code's imports give."""

from pathlib import Path
from runpy import run_path
from xml.etree import ElementTree

DOCS = Path(__file__).parents[2] / "docs"
SCRIPT = run_path(str(DOCS / "architecture.py"))


def test_the_picture_is_the_one_of_the_code():
    drawn = SCRIPT["svg"](SCRIPT["reduced"](SCRIPT["imports"]()))
    assert (DOCS / "architecture.svg").read_text() == drawn, "run `python docs/architecture.py`"
    assert "](architecture.svg)" in (DOCS / "architecture.md").read_text()


def test_no_page_needs_a_script_to_draw_its_pictures():
    assert not [path.name for path in DOCS.rglob("*.md") if "```mermaid" in path.read_text()]


def test_every_package_is_in_the_picture():
    packages = {path.parent.name for path in (DOCS.parent / "src" / "evoseek").glob("*/__init__.py")}
    assert packages <= {*SCRIPT["imports"](), *SCRIPT["FOUNDATION"].split(", ")}


def test_arrows_that_follow_from_others_are_left_out():
    graph = {"a": {"b", "c", "d"}, "b": {"c"}, "c": {"d"}, "d": set()}
    assert SCRIPT["reduced"](graph) == {"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": set()}


def test_a_box_lies_above_all_that_it_imports_and_lines_go_through_each_row_between():
    graph = {"a": {"b", "d"}, "b": {"c"}, "c": set(), "d": set()}
    assert SCRIPT["rows_of"](graph) == {"a": 2, "b": 1, "c": 0, "d": 0}
    assert SCRIPT["ways"](graph)[1] == [("a", 2), ("a d", 1), ("d", 0)]
    drawn = ElementTree.fromstring(SCRIPT["svg"](graph))
    named = [element.text for element in drawn.iter() if element.tag.endswith("text")]
    assert sorted(named) == ["a", "b", "c", "d"]
    assert sum("marker-end" in element.attrib for element in drawn.iter()) == 3  # arrows


def test_imports_are_found_wherever_they_stand(tmp_path):
    file = tmp_path / "file.py"
    file.write_text("from evoseek.web.providers import get\n\ndef f():\n    import evoseek.loss.terms, json\n")
    assert sorted(SCRIPT["imported"](file)) == ["loss", "web"]
