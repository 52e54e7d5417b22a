"""Conversations with a verdict: what is kept, who may read it, and which questions it gives."""

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from tests.raising import raises

from evoseek.errors import DataError
from evoseek.questions import feedback as module
from evoseek.questions.feedback import Feedback, FeedbackFile, FullError, JudgedQuestions, numbered

KEPT = Feedback("a", "2026-01-01T00:00:00Z", "who?", "Meri", "right", searches=({"tool": "search", "found": ["x"]},))


@pytest.fixture
def file(tmp_path):
    return FeedbackFile(tmp_path / "feedback.jsonl")


def test_what_was_added_is_read_and_only_its_owner_may_read_it(file):
    assert file.read() == []
    file.add(KEPT)
    file.add(replace(KEPT, id="b", answer=None, verdict="wrong", right_answer="Lina", note="Seite 3, größer"))
    assert [feedback.id for feedback in file.read()] == ["a", "b"]
    assert file.read()[0] == KEPT
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    file.delete(["a"])
    assert [feedback.id for feedback in file.read()] == ["b"]
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600


def test_a_second_verdict_on_an_answer_replaces_the_first(file):
    file.add(KEPT)
    file.add(replace(KEPT, id="b"))
    file.add(replace(KEPT, verdict="wrong"))
    assert [(feedback.id, feedback.verdict) for feedback in file.read()] == [("a", "wrong"), ("b", "right")]
    assert file.delete(["a"]) == 1
    assert [feedback.id for feedback in file.read()] == ["b"]


def test_writers_at_the_same_time_lose_nothing_also_while_others_delete(file):
    def add(number):
        file.add(replace(KEPT, id=str(number)))
        if number % 5 == 0:
            file.delete([str(number)])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(100)))
    assert {feedback.id for feedback in file.read()} == {str(number) for number in range(100) if number % 5}


def test_a_full_file_refuses_more_and_keeps_what_it_has(file, monkeypatch):
    monkeypatch.setattr(module, "MAX_LINES", 2)
    file.add(KEPT)
    file.add(replace(KEPT, id="b"))
    with pytest.raises(FullError, match=r"has 2 lines .* `evoseek feedback --delete`"):
        file.add(replace(KEPT, id="c"))
    file.delete(["a"])
    file.add(replace(KEPT, id="c"))
    assert [feedback.id for feedback in file.read()] == ["b", "c"]


def test_bytes_are_bounded_too(file, monkeypatch):
    monkeypatch.setattr(module, "MAX_BYTES", 300)
    file.add(KEPT)
    with pytest.raises(FullError, match="it takes 10,000 and 300"):
        file.add(replace(KEPT, id="b", note="x" * 200))
    assert len(file.read()) == 1


@pytest.mark.parametrize("row", [{"id": "a"}, {**json.loads('{"id": 1}')}, ["a"]])
def test_a_line_of_something_else_is_named(file, row):
    file.path.write_text(json.dumps(row) + "\n")
    with raises("rows.invalid", match=r"feedback\.jsonl:1 is not a verdict on an answer"):
        file.read()


def test_deleting_without_a_file_makes_none(file):
    assert file.delete(["a"]) == 0
    assert not file.path.exists()


@pytest.mark.parametrize(
    ("kept", "known"),
    [
        (KEPT, "Meri"),
        (replace(KEPT, answer=None), ""),
        (replace(KEPT, answer="Not found in the documents."), ""),
        (replace(KEPT, verdict="wrong", right_answer="Lina"), "Lina"),
        (replace(KEPT, verdict="wrong", right_answer="Not found in the documents."), ""),
        (replace(KEPT, verdict="wrong", right_answer="?"), "?"),
        (replace(KEPT, verdict="wrong", note="see page 3"), None),
    ],
)
def test_the_known_answer_of_a_verdict(kept, known):
    assert kept.known_answer == known


def test_each_question_comes_once_with_the_last_known_answer():
    verdicts = [
        KEPT,
        replace(KEPT, id="b", question=" Who? ", verdict="wrong", answer="Meri", right_answer="Lina"),
        replace(KEPT, id="c", answer="Nobody", verdict="wrong"),  # which a known answer makes needless
        replace(KEPT, id="d", question="when?", answer="1900", verdict="wrong"),
        replace(KEPT, id="e", question="when?", answer="1901", verdict="wrong"),
        replace(KEPT, id="f", question="where?", answer=None, verdict="wrong"),
        replace(KEPT, id="i", question="whose?", answer=None, unsupported="Meri's", verdict="wrong"),
        replace(KEPT, id="g", question="why?", answer=None),
        replace(KEPT, id="h", question="and his wife?", earlier=2),
    ]
    judged = JudgedQuestions.of(verdicts)
    assert [(one.id, one.text, one.golden_answers) for one in judged.known] == [
        ("feedback-a", "who?", ("Lina",)),
        ("feedback-g", "why?", ()),
    ]
    assert [one.is_answerable for one in judged.known] == [True, False]
    assert [(one.text, one.golden_answers, one.is_answerable) for one in judged.wrong] == [
        ("when?", ("1901",), True),
        ("where?", (), False),
        ("whose?", ("Meri's",), True),
    ]
    assert judged.not_alone == 1


@pytest.mark.parametrize("which", ["0", "3", "-1", "x", ""])
def test_a_number_that_is_not_in_the_list_is_refused(which):
    with pytest.raises(DataError, match="names none of the 2 conversations"):
        numbered([KEPT, KEPT], which)


def test_all_or_the_number_from_one():
    verdicts = [KEPT, replace(KEPT, id="b")]
    assert numbered(verdicts, "all") == ["a", "b"]
    assert numbered(verdicts, "2") == ["b"]
