import pytest

from evoseek.manual.library import read_library

BOATS = '''"""Boats and how they float."""
import os
os.abort()  # never executed


class Boat(object):
    """Something that floats."""

    def moor(self, place="quay"):
        """Tie it up."""

    def sink(self): pass

    def _hidden(self): pass


class Ferry(Boat):
    """Carries people."""

    def board(self, *people):
        """Let people on."""


class Raft(Boat, dict): pass


def launch(boat, *, slowly=True):
    """Put it on the water."""


class _Private: pass
'''
CARS = '''"""Cars."""
from sea import boats


class Amphibian(boats.Ferry):
    """Drives into the water."""

    def sink(self): pass


class Boat:
    """A toy."""
'''


@pytest.fixture
def source(tmp_path):
    """A source tree of two packages, with files that are no module of it."""
    folder = tmp_path / "lib"
    files = {
        "sea/__init__.py": "",
        "sea/boats.py": BOATS,
        "land/cars.py": CARS,
        "land/broken.py": "def (:",
        "land/_hidden.py": "class Hidden: pass",
        "test/test_boats.py": "class Test: pass",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def library(source):
    return read_library(source)
