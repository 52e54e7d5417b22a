"""The manual as documents and questions, read from a small source tree."""

import json

import pytest

from evoseek.corpus.demonstrations import demonstration_row
from evoseek.corpus.questions import load_questions
from evoseek.errors import DataError
from evoseek.manual import DEMONSTRATIONS, Entry, pages, questions, read_library, standard_library, write_manual

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


def test_reads_what_is_public_in_the_order_of_files(library):
    assert [entry.name for entry in library.modules] == ["land.cars", "sea", "sea.boats"]
    assert [(entry.module, entry.name, entry.bases) for entry in library.classes] == [
        ("land.cars", "Amphibian", ("Ferry",)),
        ("land.cars", "Boat", ()),
        ("sea.boats", "Boat", ()),
        ("sea.boats", "Ferry", ("Boat",)),
        ("sea.boats", "Raft", ("Boat", "dict")),
    ]
    assert library.classes[2].methods == (
        Entry("moor", "sea.boats", "moor(self, place='quay')", "Tie it up."),
        Entry("sink", "sea.boats", "sink(self)", ""),
    )
    assert library.functions == (Entry("launch", "sea.boats", "launch(boat, *, slowly=True)", "Put it on the water."),)


def test_a_folder_without_classes_is_an_error(tmp_path):
    with pytest.raises(DataError, match="holds no Python source with classes"):
        read_library(tmp_path)


def test_the_standard_library_is_here():
    assert (standard_library() / "tarfile.py").is_file()


def test_pages_hold_names_and_docstrings(library):
    found = {page.id: (page.title, page.text) for page in pages(library)}
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


def test_a_method_takes_two_searches_to_its_module(library):
    found = {page.id: page for page in pages(library)}
    method = found["method sea.boats.Boat.moor"]
    assert (method.title, method.text) == (
        "Boat.moor",
        "moor is a method of the class Boat.\n\nmoor(self, place='quay')\n\nTie it up.",
    )
    assert "moor" not in found["class sea.boats.Boat"].text


def test_ids_are_unique(library):
    ids = [page.id for page in pages(library)]
    assert len(ids) == len(set(ids)) == 12


def test_asks_only_what_has_one_answer(library):
    answers = {one.question.text: one.question.golden_answers for one in questions(library)}
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


def test_hops_lead_to_the_answer(library):
    one = next(one for one in questions(library) if one.question.id == "method's base: Ferry.board")
    assert one.question.metadata == {"hops": 2, "kind": "method's base"}
    assert one.about == "Ferry"
    assert demonstration_row(one.demonstration()) == {
        "id": "method's base: Ferry.board",
        "question": "What is the base class of the class that has the method board?",
        "golden_answers": ["Boat"],
        "metadata": {"hops": 2, "kind": "method's base"},
        "turns": [
            {"query": "board"},
            {"think": "board is a method of Ferry.", "query": "class Ferry"},
            {"think": "The base class of Ferry is Boat.", "answer": "Boat"},
        ],
    }


@pytest.fixture
def large(tmp_path):
    """A library of 400 classes with a method each."""
    folder = tmp_path / "lib"
    folder.mkdir()
    for module in range(20):
        text = "".join(
            f"class C{module}x{n}(Base):\n    def m{module}x{n}(self):\n        '''Does it.'''\n" for n in range(20)
        )
        (folder / f"part{module}.py").write_text(text)
    return read_library(folder)


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_questions_are_split_by_class(large, tmp_path):
    write_manual(tmp_path / "a", large)
    train, dev = (load_questions(tmp_path / "a" / f"{name}.jsonl") for name in ("train", "dev"))
    about = [{question.id.partition(": ")[2].partition(".")[0] for question in part} for part in (train, dev)]
    assert not about[0] & about[1]
    assert 0.1 < len(about[1]) / 400 < 0.3
    hops = [question.metadata["hops"] for question in dev]
    assert hops.count(1) == hops.count(2) == 150
    assert len(rows(tmp_path / "a" / "corpus.jsonl")) == 800


def test_demonstrations_are_of_training_questions(large, tmp_path):
    write_manual(tmp_path / "a", large)
    shown = rows(tmp_path / "a" / "demonstrations.jsonl")
    train = {question.id: question for question in load_questions(tmp_path / "a" / "train.jsonl")}
    counts = {n: sum(train[row["id"]].metadata["hops"] == n for row in shown) for n in (1, 2)}
    assert counts == DEMONSTRATIONS


def test_the_same_seed_gives_the_same_files(large, tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        write_manual(tmp_path / name, large, seed=seed)
    for name in ("corpus", "train", "dev", "demonstrations"):
        first, again, other = ((tmp_path / run / f"{name}.jsonl").read_bytes() for run in "abc")
        assert first == again
        assert (first == other) == (name == "corpus")
