"""The script that converts benchmarks, docs/benchmarks.py, on a few rows in their forms."""

import json
from dataclasses import asdict
from pathlib import Path
from runpy import run_path

import pytest

from evoseek.eval.draw import Sample
from evoseek.eval.suite import load_suite

SCRIPT = run_path(str(Path(__file__).parents[2] / "docs" / "benchmarks.py"))
PAGE = {"pageid": 7, "title": "Kalo"}
NESTED = {"decomposition": [], "evidence": {"pageid": 8, "title": "Vesu"}}
FANOUT = {
    "id": "a1",
    "question": "What is the size of each city?",
    "decomposition": [{"decomposition": [], "evidence": PAGE}, {"decomposition": [NESTED], "evidence": None}],
    "answer": {"Kalo": 1200, "Vesu": True},
}


def questions(rows, folder):
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return load_suite(str(folder / "questions.jsonl")).questions


def test_queries_of_browsecomp_plus_have_their_evidence(tmp_path):
    rows = [{"query_id": n, "query": f"who is {n}?", "answer": f"Meri {n}", "gold_docs": []} for n in (1, 2)]
    (tmp_path / "decrypted.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "qrels.txt").write_text("1 0 d7 1\n1 0 d8 1\n1 0 d9 0\n\n")
    first, second = questions(SCRIPT["browsecomp_plus"](tmp_path / "decrypted.jsonl", tmp_path / "qrels.txt"), tmp_path)
    assert (first.id, first.text, first.golden_answers) == ("1", "who is 1?", ("Meri 1",))
    assert (first.metadata.get("evidence"), second.metadata.get("evidence")) == (["d7", "d8"], None)


def test_a_question_of_fanoutqa_has_its_reference(tmp_path):
    (tmp_path / "dev.json").write_text(json.dumps([FANOUT]))
    (question,) = questions(SCRIPT["fanoutqa"](tmp_path / "dev.json"), tmp_path)
    assert (question.id, question.golden_answers) == ("a1", ("Kalo: 1200, Vesu: yes",))
    expected = {"reference": ["Kalo", "Vesu", "1200", "yes"], "evidence": ["Kalo", "Vesu"], "hops": 2}
    assert {key: question.metadata[key] for key in expected} == expected
    texts = [SCRIPT["text"](one) for one in (["a", 1], {"k": ["a", "b"]}, False, 3.5)]
    assert texts == ["a, 1", "k: a, b", "no", "3.5"]


@pytest.fixture
def results(tmp_path):
    samples = [
        Sample("1", 0, "", {"f1": 1.0}, "answered", "Meri", queries=("a b",), documents=("d7", "d1")),
        Sample("2", 0, "", {"f1": 0.0}, "max_turns", None, queries=("a b",), documents=("d3",)),
        Sample("1", 1, "", {"f1": 0.0}, "answered", "x"),
    ]
    (tmp_path / "samples.jsonl").write_text("".join(json.dumps(asdict(sample)) + "\n" for sample in samples))
    return tmp_path


def test_samples_are_written_as_the_scorers_read_them(results):
    SCRIPT["browsecomp_plus_runs"](results, results / "runs")
    row = json.loads((results / "runs" / "run_1.json").read_text())
    assert (row["query_id"], row["tool_call_counts"], row["status"]) == ("1", {"search": 1}, "completed")
    assert row["retrieved_docids"] == ["d7", "d1"]
    assert row["result"][0]["arguments"] == '{"query": "a b"}'
    assert row["result"][-1] == {"type": "output_text", "tool_name": None, "arguments": None, "output": "Meri"}
    assert json.loads((results / "runs" / "run_2.json").read_text())["status"] == "incomplete"
    SCRIPT["fanoutqa_answers"](results, results / "answers.json")
    assert json.loads((results / "answers.json").read_text()) == [{"id": "1", "answer": "Meri"}]
