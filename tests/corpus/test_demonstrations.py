"""Demonstrations on disk: strict lines, each one that cannot be used is named."""

import json

import pytest

from evoseek.corpus.demonstrations import (
    DemonstratedTurn,
    Demonstration,
    demonstration_row,
    load_demonstrations,
)
from evoseek.errors import DataError
from evoseek.types import Question

TURNS = [{"think": "who made it ?", "query": "kalo maker"}, {"answer": "meri"}]


def load(tmp_path, *rows):
    path = tmp_path / "demonstrations.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return load_demonstrations(path)


def test_a_line_is_a_question_with_its_turns(tmp_path):
    (found,) = load(tmp_path, {"question": " who made kalo ? ", "golden_answers": ["tora"], "turns": TURNS})
    asked = Question("1", "who made kalo ?", ("tora",))
    turns = (DemonstratedTurn("who made it ?", query="kalo maker"), DemonstratedTurn(answer="meri"))
    assert found == Demonstration(asked, turns)


def test_what_is_written_is_read_back(tmp_path):
    turns = (DemonstratedTurn(query="kalo"), DemonstratedTurn("it is meri", answer="meri"))
    written = Demonstration(Question("a", "who ?", ("meri",), {"hops": 2}), turns)
    assert load(tmp_path, demonstration_row(written)) == [written]
    assert demonstration_row(written)["turns"] == [{"query": "kalo"}, {"think": "it is meri", "answer": "meri"}]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"turns": TURNS}, "question: Field required"),
        ({"question": "who ?"}, "turns: Field required"),
        ({"question": "who ?", "turns": []}, "turns: List should have at least 1 item"),
        ({"question": "who ?", "turns": TURNS[:1]}, "Turn 1 of 1 has to have an `answer` and no `query`"),
        ({"question": "who ?", "turns": TURNS[::-1]}, "Turn 1 of 2 has to have a `query` and no `answer`"),
        ({"question": "who ?", "turns": [{"query": "a", "answer": "b"}, TURNS[1]]}, "Turn 1 of 2 has to"),
        ({"question": "who ?", "turns": [{"query": " "}, TURNS[1]]}, "turns.0.query: String should have at least 1"),
        ({"question": "who ?", "turns": [{"querry": "a"}, TURNS[1]]}, "turns.0.querry: Extra inputs"),
    ],
)
def test_every_line_that_cannot_be_used_is_named(tmp_path, row, told):
    good = {"question": "who ?", "turns": TURNS}
    with pytest.raises(DataError) as error:
        load(tmp_path, good, row, good, row)
    assert "2 lines of" in str(error.value)
    assert f"demonstrations.jsonl:2: {told}" in str(error.value)
    assert "demonstrations.jsonl:4: " in str(error.value)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(DataError, match=r"The demonstration file .* cannot be read"):
        load_demonstrations(tmp_path / "none.jsonl")
