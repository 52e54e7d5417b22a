"""Demonstrations of both roles from a few articles, and what is left out for the sake of held-out questions."""

import json
import random
import sys

import pytest

from evoseek.questions.demonstrations import load_demonstrations
from evoseek.search.lexical import LexicalIndex
from evoseek.types import Passage

ARTICLES = (
    ("Kalo (film)", "Kalo is a 1959 drama film directed by Meri Vesu."),
    ("Tora", "Tora is a 1961 film directed by Meri Vesu."),
    ("Night", "Night is a 1971 film directed by Sergio Lo."),
    ("Meri Vesu", "Meri Vesu (5 May 1924 – 1990) was an Italian director."),
    ("Sergio Lo", "Sergio Lo (born 7 July 1930) is a Danish director."),
    ("Lina Holm (writer)", "Lina Holm (born 8 May 1950) is a writer."),
    ("Lina Holm (singer)", "Lina Holm (born 9 May 1960) is a singer."),
    ("Pavel", "Pavel (born 1 May 1900) is a painter born in Oslo."),
)


@pytest.fixture(scope="module")
def wiki2(script):
    return script("wiki2_proposals")


@pytest.fixture(scope="module")
def facts(script):
    return script("wiki2_facts").Facts(ARTICLES)


PASSAGES = {title: [Passage(title, title, title, text)] for title, text in ARTICLES}


def find(query):
    """The articles whose titles begin with the query's first word, those that no question is about first."""
    return [p for passages in PASSAGES.values() for p in passages if p.title.startswith(query.split()[0])][::-1]


@pytest.fixture
def writer(wiki2):
    return wiki2.Writer(find, PASSAGES, 0.0, random.Random(0))


def test_a_name_of_two_articles_is_not_asked_about(wiki2, facts):
    asked = {row["question"]: row for row in wiki2.questions(facts, set())}
    assert sorted(asked) == [
        "What is the nationality of the director of the film Kalo?",
        "What is the nationality of the director of the film Night?",
        "What is the nationality of the director of the film Tora?",
        "When was Meri Vesu born?",
        "When was Pavel born?",
        "When was Sergio Lo born?",
        "When was the director of the film Kalo born?",
        "When was the director of the film Night born?",
        "When was the director of the film Tora born?",
        "Where was Pavel born?",
        "Who directed the film Kalo?",
        "Who directed the film Night?",
        "Who directed the film Tora?",
    ]
    found = asked["When was the director of the film Kalo born?"]
    assert (found["golden_answers"], found["hops"]) == (["5 May 1924", "May 5, 1924"], 2)
    assert found["evidence"] == ["Kalo (film)", "Meri Vesu"]


@pytest.mark.parametrize("title", ["Kalo (film)", "Meri Vesu"])
def test_everything_about_a_director_is_left_out_with_a_part_of_it(wiki2, facts, title):
    left = {name for row in wiki2.questions(facts, {title}) for name in row["evidence"]}
    assert left == {"Night", "Sergio Lo", "Pavel"}


def row_of(wiki2, facts, question):
    return next(row for row in wiki2.questions(facts, set()) if row["question"] == question)


def test_a_proposal_of_one_hop_needs_no_search(wiki2, facts, writer):
    shown = writer.write("proposer", row_of(wiki2, facts, "Who directed the film Kalo?"))
    assert (shown.passage, shown.hops) == (PASSAGES["Kalo (film)"][0], 1)
    (turn,) = shown.turns
    assert turn.thought == "The director is Meri Vesu."
    assert (turn.query, turn.question, turn.answer) == (None, "Who directed the film Kalo?", "Meri Vesu")


def test_one_of_two_hops_searches_for_the_director_and_names_the_film_alone(wiki2, facts, writer):
    question = "When was the director of the film Kalo born?"
    shown = writer.write("proposer", row_of(wiki2, facts, question))
    assert (shown.passage.title, shown.hops) == ("Kalo (film)", 2)
    first, last = shown.turns
    assert (first.thought, first.question) == ("The director is Meri Vesu.", None)
    assert first.query in ("Meri Vesu", "Meri Vesu born")
    assert (last.thought, last.question, last.answer) == ("Meri Vesu was born on 5 May 1924.", question, "5 May 1924")


def test_what_no_passage_of_the_article_says_is_not_demonstrated(wiki2, facts, writer):
    row = row_of(wiki2, facts, "When was the director of the film Kalo born?")
    lost = wiki2.Writer(lambda query: [Passage("x", "x", "x", "Meri Vesu 5 May 1924")], PASSAGES, 0.0, writer.rng)
    for role in ("proposer", "solver"):
        with pytest.raises(wiki2.NotFoundError):
            lost.write(role, row)
    with pytest.raises(wiki2.NotFoundError):
        wiki2.Writer(find, {}, 0.0, writer.rng).write("proposer", row)


def test_a_group_has_its_kinds_in_turn(wiki2, facts, writer):
    rows = wiki2.questions(facts, set())
    written, told = wiki2.write_group("proposer 1", 5, rows, writer)
    assert [one.hops for one in written] == [1] * 5
    assert told == {"birth date": 2, "birth place": 1, "director": 2}
    again = wiki2.write_group("proposer 1", 5, rows, wiki2.Writer(find, PASSAGES, 0.0, random.Random(0)))[0]
    assert len({one.id for one in again}) == 5


def test_the_file_of_a_folder(wiki2, tmp_path, monkeypatch):
    rows = ({"id": str(n), "title": title, "text": text} for n, (title, text) in enumerate(ARTICLES))
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "dev.jsonl").write_text(json.dumps({"question": "q", "evidence": ["Night"]}) + "\n")
    LexicalIndex.build(tmp_path / "index", [passage for passages in PASSAGES.values() for passage in passages])
    out = tmp_path / "d.jsonl"
    given = [str(tmp_path), str(out), "--index", str(tmp_path / "index"), "--count", "proposer 2=3"]
    monkeypatch.setattr(sys, "argv", ["wiki2_proposals.py", *given])
    wiki2.main()
    texts = out.read_text()
    assert "Night" not in texts
    assert "Sergio" not in texts
    shown = load_demonstrations(out)
    roles = [type(one).__name__ for one in shown]
    assert (roles.count("ProposerDemonstration"), roles.count("Demonstration")) == (8, 9)
    wiki2.main()
    assert out.read_text() == texts
