import json

import pytest

from evoseek.corpus.questions import load_questions
from evoseek.manual.folder import DEMONSTRATIONS, write_manual
from evoseek.manual.library import read_library


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
