"""The pictures of the systems are those that docs/pictures.py draws."""

from pathlib import Path
from runpy import run_path
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).parents[2] / "docs"
SCRIPT = run_path(str(DOCS / "pictures.py"))


@pytest.mark.parametrize("name", SCRIPT["PICTURES"])
def test_a_picture_is_the_one_of_the_script(name):
    drawn = SCRIPT["svg"](SCRIPT["PICTURES"][name])
    assert (DOCS / "systems" / f"{name}.svg").read_text() == drawn, "run `python docs/pictures.py`"
    assert ElementTree.fromstring(drawn).tag.endswith("svg")


def test_every_page_of_a_system_shows_its_own():
    for path in (DOCS / "systems").glob("*.md"):
        assert f"]({path.stem}.svg)" in path.read_text()


def test_arrows_go_from_edge_to_edge():
    """Boxes are 138 by 52, their middles 182 and 92 apart, the first at (91, 48)."""
    box, points = SCRIPT["Box"], SCRIPT["_points"]
    first = box(0, 0, "data", "")
    assert (first.x, first.y) == (91, 48)
    assert points(first, box(1, 0, "data", ""), over=False) == [(160, 48), (204, 48)]
    assert points(first, box(0, 1, "data", ""), over=False) == [(91, 74), (91, 114)]
    assert points(first, box(1, 1, "data", ""), over=False) == [(91, 74), (91, 140), (204, 140)]
    assert points(box(1, 0, "data", ""), first, over=True) == [(273, 22), (273, 2), (91, 2), (91, 22)]
