"""Demonstrations by patterns, of each kind of question, on a few passages."""

import random
from pathlib import Path
from runpy import run_path

import pytest

from evoseek.types import Passage

BENCH = run_path(str(Path(__file__).parents[2] / "bench" / "wiki2_demonstrations.py"))
PASSAGES = [
    Passage("a", "a", "Kalo (1959 film)", "Kalo is a 1959 drama film directed by Meri Vesu."),
    Passage("b", "b", "Tora", "Tora is a 2017 film directed by Lina."),
    Passage(
        "c", "c", "Meri Vesu (director)", "Meri Vesu ( 5 May 1924 - 1990) was an Argentine director, born in Oslo."
    ),
]


def find(query):
    return [passage for passage in PASSAGES if passage.title.startswith(query.split()[0])]


def row(kind, question, golds, *evidence):
    return {"question": question, "golden_answers": golds, "kind": kind, "evidence": list(evidence), "hops": 1}


FILM, PERSON = "Kalo (1959 film)", "Meri Vesu (director)"
ROWS = {
    "director": row("director", "Who directed the film Kalo?", ["Meri Vesu"], FILM),
    "birth date": row("birth date", "When was Meri Vesu born?", ["May 5, 1924", "5 May 1924"], PERSON),
    "birth place": row("birth place", "Where was Meri Vesu born?", ["Oslo"], PERSON),
    "director birth date": row(
        "director birth date", "When was the director of the film Kalo born?", ["5 May 1924"], FILM, PERSON
    ),
    "director nationality": row(
        "director nationality", "What is the nationality of the director of the film Kalo?", ["Argentine"], FILM, PERSON
    ),
    "comparison": row("comparison", "Which film came out first, Tora or Kalo?", ["Kalo"], FILM, "Tora"),
}
THOUGHTS = {
    "director": ["", "The director is Meri Vesu."],
    "birth date": ["", "Meri Vesu was born on 5 May 1924."],
    "birth place": ["", "Meri Vesu was born in Oslo."],
    "director birth date": ["", "The director is Meri Vesu.", "Meri Vesu was born on 5 May 1924."],
    "director nationality": ["", "The director is Meri Vesu.", "Meri Vesu is Argentine."],
    "comparison": ["", "Tora came out in 2017.", "Kalo came out in 1959."],
}
EARLY = {"director birth date": "Meri Vesu", "director nationality": "Meri Vesu", "comparison": "Tora"}


@pytest.mark.parametrize("kind", ROWS)
def test_each_kind_of_question(kind):
    written, stops = BENCH["Demonstrator"](find, 0.0, random.Random(0)).write(ROWS[kind])
    assert not stops
    assert [turn.thought for turn in written.turns] == THOUGHTS[kind]
    assert written.turns[-1].answer in ROWS[kind]["golden_answers"]
    assert all(turn.query.startswith(("Kalo", "Tora", "Meri Vesu")) for turn in written.turns[:-1])


@pytest.mark.parametrize("kind", EARLY)
def test_one_of_two_hops_may_stop_early_with_the_wrong_answer(kind):
    written, stops = BENCH["Demonstrator"](find, 1.0, random.Random(0)).write(ROWS[kind])
    assert stops
    assert (len(written.turns), written.turns[-1].answer) == (2, EARLY[kind])


def test_there_are_as_many_of_each_kind_as_wanted_and_those_not_found_are_counted():
    lost = row("director", "Who directed the film Zuva?", ["Nobody"], "Zuva")
    rows = [lost, ROWS["director"], ROWS["birth date"], lost, ROWS["director"], ROWS["director"]]
    demonstrator = BENCH["Demonstrator"](find, 0.0, random.Random(0))
    written, told = BENCH["write_demonstrations"](rows, {"director": 2}, demonstrator)
    assert [one.question.text for one in written] == ["Who directed the film Kalo?"] * 2
    assert {kind: dict(counts) for kind, counts in told.items()} == {
        "director": {"not found": 2, "written": 2, "stop early": 0}
    }
