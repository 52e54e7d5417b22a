"""Searches on disk: what is written is read back, and what is no search is refused by its line."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.errors import DataError
from evoseek.systems.zerosearch.searches import (
    SearchRecord,
    document_text,
    document_texts,
    load_records,
    save_records,
)
from evoseek.types import Passage, Question

QUESTION = Question("q1", "who?", ("Meri", "M."), {"hops": 2, "chain": [["Kalo", "mayor", "Meri"]]})
PASSAGES = (Passage("k#0", "k#0", "Kalo", "Kalo's mayor is Meri."), Passage("n#0", "n#0", "", "line\u2028one"))
RECORDS = [
    SearchRecord(QUESTION, "Kalo's mayor", PASSAGES, trajectory="collect/q1"),
    SearchRecord(QUESTION, "Kalo's mayor", PASSAGES[1:], 2, False, "collect/q1"),
    SearchRecord(QUESTION, "ä", PASSAGES[:1], 1, True),
]


def test_records_come_back(tmp_path):
    save_records(tmp_path / "s.jsonl", RECORDS)
    assert load_records(tmp_path / "s.jsonl") == RECORDS
    rows = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text(encoding="utf-8").split("\n")[:-1]]
    assert [row.get("useful") for row in rows] == [None, False, True]
    assert "useful" not in rows[0]
    assert rows[0]["question"]["question"] == "who?"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"page": 0}, "page"),
        ({"useful": "yes"}, "useful"),
        ({"passages": []}, "passages"),
        ({"query": None}, "query"),
        ({"score": 1}, "score"),
        ({"question": "who?"}, "question"),
        ({"passages": ["Kalo"]}, "passages"),
        ({"passages": [{"id": "k#0", "title": "Kalo"}]}, "passages.0.text"),
        ({"question": {"id": "q1", "question": "who?", "golden_answers": []}}, "The question has no golden answer"),
    ],
)
def test_a_line_that_is_no_search_is_named(tmp_path, change, said):
    path = tmp_path / "s.jsonl"
    save_records(path, RECORDS)
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    lines[1] = json.dumps({**json.loads(lines[1]), **change})
    path.write_text("\n".join(lines))
    with pytest.raises(DataError, match=rf"s\.jsonl:2: {said}"):
        load_records(path)


def test_files_put_together_have_each_search_once_and_it_is_said(tmp_path):
    other = replace(RECORDS[0], passages=PASSAGES[:1])  # the same query of another index
    save_records(tmp_path / "s.jsonl", [RECORDS[0], other, RECORDS[1], RECORDS[0], RECORDS[1]])
    told = []
    assert load_records(tmp_path / "s.jsonl", notify=told.append) == [RECORDS[0], other, RECORDS[1]]
    assert told == [f"2 of the 5 searches in {tmp_path / 's.jsonl'} repeat an earlier one and are left out."]


def test_documents_are_cut_to_what_a_simulator_writes():
    assert document_texts(RECORDS[0], 2, 3) == ["Kalo's mayor is", "line one"]
    assert document_texts(RECORDS[0], 1, 9) == ["Kalo's mayor is Meri."]


@pytest.mark.parametrize(
    ("title", "text", "expected"),
    [
        ("Kalo", "Kalo's mayor is\nMeri.", "Kalo's mayor is Meri."),
        ("KALO", "Kalo  is a city.", "Kalo is a city."),
        ("Kalo", "It is a city.", "Kalo. It is a city."),
        ("Kalo Inc.", "A company.", "Kalo Inc. A company."),
        ("", "A company.", "A company."),
    ],
)
def test_a_passage_as_a_document(title, text, expected):
    assert document_text(Passage("p", "p", title, text)) == expected


@given(st.text(), st.text())
def test_a_document_is_one_line(title, text):
    assert len(document_text(Passage("p", "p", title, text)).splitlines()) <= 1
