"""Demonstrations on disk: strict lines, each one that cannot be used is named."""

import json
from dataclasses import replace

import pytest

from evoseek.errors import DataError
from evoseek.questions.demonstrations import (
    DemonstratedTurn,
    Demonstration,
    ProposerDemonstration,
    demonstration_row,
    load_demonstrations,
)
from evoseek.types import Passage, Question

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


def test_a_proposers_line_has_a_passage_and_its_last_turn_a_question(tmp_path):
    passage = {"title": "Kalo", "text": "Meri made Kalo ."}
    turns = [{"query": "meri"}, {"think": "so", "question": " when was it ? ", "answer": "1901"}]
    row = {"role": "proposer", "passage": passage, "hops": 2, "turns": turns}
    solver = {"role": "solver", "question": "who ?", "turns": TURNS}
    found, solved = load(tmp_path, row, solver)
    shown = Passage("1", "1", "Kalo", "Meri made Kalo .")
    written = (DemonstratedTurn(query="meri"), DemonstratedTurn("so", None, "1901", "when was it ?"))
    assert found == ProposerDemonstration("1", shown, 2, written)
    assert isinstance(solved, Demonstration)
    assert load(tmp_path, demonstration_row(found), demonstration_row(solved)) == [found, solved]
    under = replace(found, passage=replace(shown, heading="History"))  # as the proposer is shown it
    assert load(tmp_path, demonstration_row(under))[0].passage == replace(shown, title="Kalo: History")


PROPOSER = {"role": "proposer", "passage": {"text": "a"}, "hops": 1, "turns": [{"question": "q ?", "answer": "b"}]}


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"role": "reader", "question": "who ?", "turns": TURNS}, "role: Input should be 'solver' or 'proposer'"),
        ({**PROPOSER, "question": "who ?"}, "question: Extra inputs are not permitted. Expected a passage (`title`"),
        ({**PROPOSER, "passage": {"title": "a"}}, "passage.text: Field required"),
        ({**PROPOSER, "hops": -1}, "hops: Input should be greater than or equal to 0"),
        ({**PROPOSER, "turns": [{"answer": "b"}]}, "Turn 1 of 1 has to have a `question`: the last turn of a proposer"),
        (
            {**PROPOSER, "turns": [{"query": "a", "question": "q ?"}, *PROPOSER["turns"]]},
            "Turn 1 of 2 has to have no `question`",
        ),
        (
            {"question": "who ?", "turns": [{"question": "q ?", "answer": "b"}]},
            "Turn 1 of 1 has to have no `question`: the last turn of a proposer states",
        ),
        (
            {"question": "who ?", "turns": TURNS, "metadata": {"hidden": "a"}},
            "The key `hidden` must be a list of texts",
        ),
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
