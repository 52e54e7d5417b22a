import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.corpus.questions import load_questions, save_questions
from evoseek.corpus.rows import MAX_LINE_BYTES
from evoseek.errors import DataError
from evoseek.types import Question


def write(path, *rows):
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return path


def test_all_shapes(tmp_path):
    path = write(
        tmp_path / "q.jsonl",
        {"id": "a", "question": " who? ", "golden_answers": ["x", "y"], "metadata": {"source": "nq"}},
        "",
        {"question": "what?", "answer": "z", "hops": 2},
    )
    assert load_questions(path) == [
        Question("a", "who?", ("x", "y"), {"source": "nq"}),
        Question("3", "what?", ("z",), {"hops": 2}),
    ]


@pytest.mark.parametrize(
    ("row", "phrase"),
    [
        ("{", "Expecting property name"),
        ("3", "Expected a JSON object, got int"),
        ({"question": "who?", "golden_answers": None}, "no golden answer"),
        ({"question": "who?", "golden_answers": ["x", 3]}, "got 3"),
        ({"question": " ", "answer": "x"}, "`question`"),
        ({"question": "who?", "answer": "x", "metadata": 3}, "`metadata`"),
        ({"question": "who?", "answer": "x", "metadata": 0}, "`metadata`"),
        ({"question": "who?", "answer": "x", "metadata": {"hops": "2"}}, "`hops` must be an integer, got '2'"),
        ({"question": "who?", "answer": "x", "hops": True}, "`hops` must be an integer, got True"),
        ({"question": "who?", "answer": "x", "id": 1.5}, "`id` must be a text or an integer, got 1.5"),
        ({"question": "who?", "answer": "x", "id": None}, "`id` must be a text or an integer, got None"),
        ('{"question": ' + "[" * 100_000, "nested too deeply"),
        ('{"question": "who\0", "answer": "x"}', "NUL bytes"),
        ('{"question": "' + "x" * MAX_LINE_BYTES + '"}', "longer than"),
    ],
)
def test_a_bad_line_is_named(tmp_path, row, phrase):
    path = write(tmp_path / "q.jsonl", {"question": "fine", "answer": "x"}, row)
    with pytest.raises(DataError) as caught:
        load_questions(path)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert phrase in str(caught.value)


def test_a_byte_order_mark_is_passed_over(tmp_path):
    path = write(tmp_path / "q.jsonl", '\ufeff{"id": 7, "question": "who?", "answer": "x"}')
    assert load_questions(path) == [Question("7", "who?", ("x",))]


def test_ids_are_unique(tmp_path):
    row = {"id": "a", "question": "who?", "answer": "x"}
    with pytest.raises(DataError, match="occurs twice"):
        load_questions(write(tmp_path / "q.jsonl", row, row))


def test_check_may_refuse(tmp_path):
    def check(question):
        raise DataError(f"no {question.text}")

    with pytest.raises(DataError, match=":1: no who"):
        load_questions(write(tmp_path / "q.jsonl", {"question": "who?", "answer": "x"}), check=check)


def test_files_without_questions(tmp_path):
    with pytest.raises(DataError, match="holds no question"):
        load_questions(write(tmp_path / "q.jsonl", ""))
    with pytest.raises(DataError, match="cannot be read"):
        load_questions(tmp_path / "missing.jsonl")
    (tmp_path / "latin.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="UTF-8"):
        load_questions(tmp_path / "latin.jsonl")


texts = st.text(min_size=1).map(str.strip).filter(bool)


@given(st.lists(st.tuples(texts, st.lists(st.text(), min_size=1)), min_size=1))
def test_saved_questions_come_back(tmp_path_factory, drawn):
    questions = [Question(f"q{n}", text, tuple(golden), {"hops": n}) for n, (text, golden) in enumerate(drawn)]
    path = tmp_path_factory.mktemp("questions") / "q.jsonl"
    save_questions(path, questions)
    assert load_questions(path) == questions
