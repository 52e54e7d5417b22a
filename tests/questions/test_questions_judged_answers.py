"""Files of labelled answers: every line counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.raising import raises

from evoseek.errors import DataError
from evoseek.questions.questions import JudgedAnswer, load_judged_answers
from evoseek.types import Question

ROW = {"question": "Who wrote Dune?", "golden_answers": ["Frank Herbert"], "answer": "F. Herbert", "correct": True}


def write(path: Path, *rows: object) -> Path:
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return path


def test_answers_come_with_their_lines(tmp_path: Path) -> None:
    """One question may have many answers; its golden answers are never the answer to judge."""
    path = write(tmp_path / "c.jsonl", {**ROW, "id": "a"}, "", {**ROW, "id": "a", "answer": "", "correct": False})
    question = Question("a", "Who wrote Dune?", ("Frank Herbert",))
    assert load_judged_answers(path) == [
        JudgedAnswer(question, "F. Herbert", True, 1),
        JudgedAnswer(question, "", False, 3),
    ]


@pytest.mark.parametrize(
    ("bad", "phrase"),
    [
        ("{", "Expecting property name"),
        ("[]", "Expected a JSON object, got list"),
        ({**ROW, "answer": None}, "`answer`, the text that is to be judged, is missing"),
        ({**ROW, "correct": "yes"}, "`correct`, true or false, says whether the answer is; got 'yes'"),
        ({**ROW, "correct": 1}, "got 1"),
        ({"question": "who?", "golden_answers": ["x"], "answer": "x"}, "got None"),
        ({"question": "who?", "answer": "x", "correct": True}, "`golden_answers`, a list of the right answers"),
        ({**ROW, "golden_answers": []}, "no golden answer"),
        ({**ROW, "question": " "}, "`question`"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, bad: object, phrase: str) -> None:
    path = write(tmp_path / "cases.jsonl", ROW, bad)
    with pytest.raises(DataError) as caught:
        load_judged_answers(path)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert phrase in str(caught.value)


def test_files_without_cases(tmp_path: Path) -> None:
    with raises("rows.empty", match="holds no judged answer"):
        load_judged_answers(write(tmp_path / "cases.jsonl", ""))
    with raises("rows.missing", match=r"cannot be read.*`correct`"):
        load_judged_answers(tmp_path / "missing.jsonl")
