"""The table of people's questions, from samples written down here."""

import json

import pytest

from evoseek.eval.draw import Sample
from evoseek.search.lexical import LexicalIndex
from evoseek.types import Passage, Question


def sample(n, right, *, answer="it", answerable=True, supported=True, recall=None, cited=None):
    scores = {"guarded_substring_match": right, "exact_match": right, "f1": right}
    return Sample(
        f"q{n}",
        0,
        str(n),
        scores,
        "answered",
        answer,
        answerable=answerable,
        supported=supported,
        recall=recall,
        cited=cited,
    )


REFUSAL = "Not found in the documents."
SHORT = "guarded_substring_match"


def test_a_row_counts_what_is_read_cited_refused_and_shown(script):
    """Of 5 answerable questions: 2 right and shown, 1 wrong and shown, 1 wrong and held back, 1 refused. Of 4 others: 1
    refused, 1 shown, 2 held back."""
    samples = [
        sample(1, 1.0, recall=1.0, cited=1.0),
        sample(2, 1.0, recall=0.5, cited=0.0),
        sample(3, 0.0, recall=0.0, cited=1.0),
        sample(4, 0.0, recall=1.0, supported=False, cited=0.5),
        sample(5, 0.0, answer=REFUSAL, supported=False),
        sample(6, 1.0, answer=REFUSAL, answerable=False, supported=False),
        sample(7, 0.0, answerable=False),
        *(sample(n, 0.0, answerable=False, supported=False) for n in (8, 9)),
    ]
    found = script("people").row(samples, SHORT)
    assert (found["n"], found["unanswerable"]) == (5, 4)
    assert found[SHORT][0] == 0.4
    assert found["read"][0] == 3 / 4  # one has no known evidence, one evidence that was not read
    assert found["cited"][0] == 1 / 2  # what was not read counts for nothing
    assert (found["refusals_right"][0], found["refused"][0]) == (1 / 2, 1 / 4)
    assert found["wrong_shown"][0] == 2 / 4
    assert found["unanswerable_shown"][0] == 1 / 4


def test_nothing_is_said_of_what_there_is_none_of(script):
    found = script("people").row([sample(1, 1.0)], "f1")
    assert [key for key, value in found.items() if value is None] == [
        *("read", "cited", "refusals_right", "refused", "wrong_shown", "unanswerable_shown")
    ]
    line = [*script("people").table([{**found, "set": "tv", "row": "x", "metric": "f1"}])][-1]
    assert line.startswith("| tv | x | 1 + 0 | 1.00 [0.21, 1.00] |")


def test_a_run_is_compared_on_answerable_questions_and_on_others(script):
    """6 gained and none lost: McNemar's p is 2 / 2 ** 6. One that is refused now counts on the other side."""
    before = [*(sample(n, 0.0) for n in range(6)), sample(6, 1.0), sample(7, 0.0, answerable=False)]
    after = [*(sample(n, 1.0) for n in range(7)), sample(7, 1.0, answer=REFUSAL, answerable=False)]
    found = script("people").against(before, after, SHORT)
    assert found["answerable"] == pytest.approx(6 / 7)
    assert found["answerable_p"] == pytest.approx(2 / 2**6)
    assert (found["unanswerable"], found["unanswerable_p"]) == (1.0, 1.0)


def test_the_first_hit_is_right_if_it_holds_a_golden_answer(script, tmp_path):
    long = "A kettle " + "that is long " * 9 + "holds 1.7 litres."
    index = LexicalIndex.build(tmp_path / "index", [Passage("a#0", "a", "a", long), Passage("b#0", "b", "b", "Tea")])
    questions = [
        Question("q1", "What does a kettle hold?", ("1.7 litres",), {"evidence": ["a"]}),
        Question("q2", "Which colour has tea?", ("green",), {"evidence": ["a"]}),
        Question("q3", "Who sells a kettle?", (), {"answerable": False}),
    ]
    first, second, third = script("people").first_hits(questions, index)
    assert (first.scores[SHORT], first.recall) == (1.0, 1.0)
    assert (second.scores[SHORT], second.recall) == (0.0, 0.0)
    assert not third.answerable


@pytest.mark.parametrize(
    ("limit", "taken"), [(None, [0, 1, 2, 3, 4, 5, 6]), (3, [1, 3, 5]), (9, [0, 1, 2, 3, 4, 5, 6])]
)
def test_a_limit_is_spread_over_the_questions(script, limit, taken):
    assert script("people").spread(list(range(7)), limit) == taken


def test_rows_of_wordings_and_earlier_ones_are_kept(script, tmp_path):
    people = script("people")
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents/kettle.txt").write_text("The kettle holds 1.7 litres.")
    rows = [
        {"id": "q1", "question": "What does the kettle hold?", "golden_answers": ["1.7 litres"], "wording": "close"},
        {"id": "q2", "question": "How big is my kettle?", "golden_answers": ["2 litres"], "wording": "own"},
    ]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    kettles = people.PeopleSet("kettles", "questions.jsonl", "documents", SHORT, "")
    found = [*people.rows_of(kettles, tmp_path, tmp_path / "out", [], None)]
    assert [(one["set"], one["n"], one[SHORT][0]) for one in found] == [
        ("kettles", 2, 0.5),
        ("kettles, close", 1, 1.0),
        ("kettles, own", 1, 0.0),
    ]
    (tmp_path / "people.jsonl").write_text("".join(json.dumps(one) + "\n" for one in found))
    assert [*people.saved(tmp_path / "people.jsonl")] == [(one["set"], "first hit", None) for one in found]


def test_an_endpoint_and_a_model_are_answered_by_search_first(script):
    people = script("people")
    given = people.argparse.Namespace(
        model=["tiny"], run=[], endpoint=["large@http://localhost:1/v1"], settings=["search.k=5"]
    )
    model, endpoint = people.answerers(given)
    assert model.settings == {"policy.model": "tiny", "search.k": "5"}
    assert endpoint.settings == {
        "answerer.model": "large",
        "answerer.base_url": "http://localhost:1/v1",
        "search.k": "5",
    }


def test_an_untrained_model_is_asked_as_ask_asks_it(script, monkeypatch, tmp_path):
    people, given = script("people"), []

    class Asked(Exception):
        pass

    def run(**options):
        given.append(options["settings"])
        raise Asked

    monkeypatch.setattr(people, "Run", run)
    with pytest.raises(Asked):
        people.Answering("small", {"policy.model": "small"}).evaluate([], tmp_path, tmp_path / "out")
    assert not any(key.startswith(("environment", "rollout", "policy.format")) for key in given[0])
