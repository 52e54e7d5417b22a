"""Three rings of tests: `make check` is what a change needs, `make test` what a merge needs, `make night` all.

EVOSEEK_RING names the ring. Without it every test that is named on the command line runs, in the sizes of `check`.
"""

import os
from pathlib import Path

import pytest

RING = os.environ.get("EVOSEEK_RING", "")
RINGS = ("check", "test", "night")
MARKS = {"merge": "test", "night": "night"}  # the first ring in which a test with this mark runs
AT_NIGHT = ("bench", "extra", "tools", "docs/test_site.py")  # of what no user runs, or what needs another environment


def sized(check: int, test: int, night: int) -> int:
    """A number of examples, copies or points, by ring."""
    return {"test": test, "night": night}.get(RING, check)


def runs(item: pytest.Item) -> bool:
    """Whether a test belongs to the ring that runs."""
    if not RING:
        return True
    first = ["check", *(ring for mark, ring in MARKS.items() if item.get_closest_marker(mark))]
    tests = Path(__file__).parent
    if any(item.path.is_relative_to(tests / place) for place in AT_NIGHT):
        first.append("night")
    return RINGS.index(RING) >= max(map(RINGS.index, first))
