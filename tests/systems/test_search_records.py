"""Searches on disk: what is written is read back, and what is no search is refused by its line."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.errors import DataError
from evoseek.systems.search_records import SearchRecord, document_text, load_records, save_records
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


@pytest.mark.parametrize(("content", "said"), [(b"", "holds no searches"), (b"{", ":1: the line"), (b"\xff\n", ":1:")])
def test_files_of_something_else(tmp_path, content, said):
    path = tmp_path / "s.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=said):
        load_records(path)
    with pytest.raises(DataError, match="cannot be read"):
        load_records(tmp_path)


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
