"""A question file that is written batch by batch: what is kept of it, and what comes back."""

import json
from pathlib import Path

import pytest

from evoseek.corpus.question_file import Reached, open_question_file
from evoseek.corpus.questions import load_questions
from evoseek.errors import DataError
from evoseek.types import Question

SETTINGS = {"policy": {"model": "tiny"}, "run": {"seed": 0}}
QUESTIONS = [Question(f"q{n}", f"Wo liegt Städtchen {n}?", (f"Tal {n}",), {"requested": n}) for n in range(1, 6)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out" / "questions.jsonl"


def test_it_is_resumed_where_it_was_left(path: Path) -> None:
    with open_question_file(path, SETTINGS) as file:
        file.append(QUESTIONS[:2], Reached(1, {"valid": 2}))
        file.append(QUESTIONS[2:4], Reached(2, {"valid": 5, "too_short": 1}, (QUESTIONS[4],)))
    with open_question_file(path, SETTINGS) as file:
        assert file.reached == Reached(2, {"valid": 5, "too_short": 1}, (QUESTIONS[4],))
        assert file.questions() == QUESTIONS[:4]
        file.append(file.reached.spare, Reached(2, {"valid": 5}))
    assert load_questions(path) == QUESTIONS
    assert json.loads(path.read_text().splitlines()[4]) == {
        "id": "q5",
        "question": "Wo liegt Städtchen 5?",
        "golden_answers": ["Tal 5"],
        "metadata": {"requested": 5},
    }


def test_a_batch_without_questions_counts(path: Path) -> None:
    with open_question_file(path, SETTINGS) as file:
        assert file.questions() == []
        file.append([], Reached(1, {"unfinished": 8}))
    assert path.read_bytes() == b""
    with open_question_file(path, SETTINGS) as file:
        assert file.reached == Reached(1, {"unfinished": 8})


def test_a_line_that_is_no_question_is_named(path: Path) -> None:
    with open_question_file(path, SETTINGS) as file:
        file.append(QUESTIONS[:1], Reached(1, {"valid": 1}))
        path.write_text("{}\n")
        with pytest.raises(DataError, match=r"questions\.jsonl:1: The key `question`"):
            file.questions()
