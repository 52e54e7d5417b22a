"""The manual as documents and questions, read from a small source tree."""

import json

import pytest

from evoseek.errors import DataError
from evoseek.questions.questions import load_questions

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
def manual(script):
    return script("manual")


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
def library(manual, source):
    return manual.read_library(source)


def test_reads_what_is_public_in_the_order_of_files(manual, library):
    assert [entry.name for entry in library.modules] == ["land.cars", "sea", "sea.boats"]
    assert [(entry.module, entry.name, entry.bases) for entry in library.classes] == [
        ("land.cars", "Amphibian", ("Ferry",)),
        ("land.cars", "Boat", ()),
        ("sea.boats", "Boat", ()),
        ("sea.boats", "Ferry", ("Boat",)),
        ("sea.boats", "Raft", ("Boat", "dict")),
    ]
    assert library.classes[2].methods == (
        manual.Entry("moor", "sea.boats", "moor(self, place='quay')", "Tie it up."),
        manual.Entry("sink", "sea.boats", "sink(self)", ""),
    )
    assert library.functions == (
        manual.Entry("launch", "sea.boats", "launch(boat, *, slowly=True)", "Put it on the water."),
    )


def test_a_folder_without_classes_is_an_error(manual, tmp_path):
    with pytest.raises(DataError, match="holds no Python source with classes"):
        manual.read_library(tmp_path)


def test_the_standard_library_is_here(manual):
    assert (manual.standard_library() / "tarfile.py").is_file()


def test_pages_hold_names_and_docstrings(manual, library):
    found = {page.id: (page.title, page.text) for page in manual.pages(library)}
    assert found["module sea.boats"] == ("sea.boats", "The module sea.boats.\n\nBoats and how they float.")
    assert found["class sea.boats.Ferry"] == (
        "Ferry",
        "Ferry is a class of the module sea.boats. Its base class is Boat.\n\nCarries people.",
    )
    assert found["class sea.boats.Raft"][1].startswith(
        "Raft is a class of the module sea.boats. Its base class is Boat and dict."
    )
    assert found["function sea.boats.launch"] == (
        "launch",
        "launch(boat, *, slowly=True): a function of the module sea.boats.\n\nPut it on the water.",
    )
    assert "module sea" not in found  # it says nothing


def test_a_method_takes_two_searches_to_its_module(manual, library):
    found = {page.id: page for page in manual.pages(library)}
    method = found["method sea.boats.Boat.moor"]
    assert (method.title, method.text) == (
        "Boat.moor",
        "moor is a method of the class Boat.\n\nmoor(self, place='quay')\n\nTie it up.",
    )
    assert "moor" not in found["class sea.boats.Boat"].text


def test_ids_are_unique(manual, library):
    ids = [page.id for page in manual.pages(library)]
    assert len(ids) == len(set(ids)) == 12


def test_asks_only_what_has_one_answer(manual, library):
    answers = {one.text: one.golden_answers for one in manual.questions(library)}
    assert answers == {
        "Which module has the class Amphibian?": ("land.cars",),
        "What is the base class of the class Amphibian?": ("Ferry",),
        "Which module has the class Ferry?": ("sea.boats",),
        "What is the base class of the class Ferry?": ("Boat",),
        "Which class has the method board?": ("Ferry",),
        "Which module has the class with the method board?": ("sea.boats",),
        "What is the base class of the class that has the method board?": ("Boat",),
        "Which module has the class Raft?": ("sea.boats",),
    }  # two classes Boat, two methods sink, two bases of Raft


def test_the_evidence_is_a_page_for_each_hop(manual, library):
    about = {one.id: one.metadata for one in manual.questions(library)}
    method, ferry = "method sea.boats.Ferry.board", "class sea.boats.Ferry"
    assert about["class: Ferry.board"] == {"hops": 1, "kind": "class", "evidence": [method]}
    assert about["method's base: Ferry.board"] == {"hops": 2, "kind": "method's base", "evidence": [method, ferry]}
    assert {id for one in about.values() for id in one["evidence"]} <= {page.id for page in manual.pages(library)}


@pytest.fixture
def large(manual, tmp_path):
    """A library of 400 classes with a method each."""
    folder = tmp_path / "lib"
    folder.mkdir()
    for module in range(20):
        text = "".join(
            f"class C{module}x{n}(Base):\n    def m{module}x{n}(self):\n        '''Does it.'''\n" for n in range(20)
        )
        (folder / f"part{module}.py").write_text(text)
    return manual.read_library(folder)


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_as_many_questions_of_one_hop_as_of_two_and_some_without_their_page(manual, large, tmp_path):
    manual.write_manual(tmp_path / "a", large)
    dev = load_questions(tmp_path / "a" / "dev.jsonl")
    hops = [question.metadata.get("hops") for question in dev]
    assert (hops.count(1), hops.count(2), hops.count(None)) == (150, 150, 60)
    assert [question.is_answerable for question in dev] == [hop is not None for hop in hops]
    assert len({question.text for question in dev}) == 360
    assert len(rows(tmp_path / "a" / "corpus.jsonl")) == 800


def test_no_page_that_is_left_names_both_what_is_asked_about_and_its_answer(manual, library, tmp_path, monkeypatch):
    monkeypatch.setattr(manual, "DEV_QUESTIONS", 0)
    manual.write_manual(tmp_path / "a", library)
    hidden = {row["id"]: row["metadata"]["hidden"] for row in rows(tmp_path / "a" / "dev.jsonl")}
    assert hidden == {
        "module: Amphibian": ["class land.cars.Amphibian"],
        "base: Amphibian": ["class land.cars.Amphibian"],
        "module: Ferry": ["class sea.boats.Ferry"],
        "base: Ferry": ["class sea.boats.Ferry"],
        "class: Ferry.board": ["method sea.boats.Ferry.board"],
        "module: Raft": ["class sea.boats.Raft"],
    }
    assert not any(row["golden_answers"] for row in rows(tmp_path / "a" / "dev.jsonl"))


def test_the_same_seed_gives_the_same_files(manual, large, tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        manual.write_manual(tmp_path / name, large, seed=seed)
    for name in ("corpus", "dev"):
        first, again, other = ((tmp_path / run / f"{name}.jsonl").read_bytes() for run in "abc")
        assert first == again
        assert (first == other) == (name == "corpus")
