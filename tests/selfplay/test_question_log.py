import json

import pytest

from evoseek.errors import DataError, RunError
from evoseek.questions.questions import load_questions
from evoseek.selfplay.question_log import QuestionLog, trained_on
from evoseek.storage.runs import RunDirectory
from evoseek.types import Question


def question(name: str, **metadata: object) -> Question:
    return Question(name, f"who is {name} ?", ("meri", "Meri"), {"requested": 2, "evidence": ["a#0"], **metadata})


A, B, C, D = map(question, "abcd")


@pytest.fixture
def log(tmp_path):
    log = QuestionLog(tmp_path / "questions.jsonl")
    for step, questions in ((1, [A, B]), (3, []), (4, [C]), (12, [D])):
        log.append(step, questions)
    return log


def written(name: str, step: int) -> Question:
    return question(name, step=step)


def test_questions_come_back_by_the_steps_that_wrote_them(log):
    assert log.read(1, 4) == [written("a", 1), written("b", 1), written("c", 4)]
    assert log.read(4, 4) == [written("c", 4)]
    assert log.read(2, 3) == []
    assert log.read(5, 11) == []
    assert log.read(4, 1) == []
    assert log.read(0, 10**9) == load_questions(log.path)


def test_what_a_cold_start_demonstrated_counts_as_trained_on(tmp_path):
    run = RunDirectory(tmp_path)
    shown = run.held_out.with_name("demonstrations.jsonl")
    shown.parent.mkdir()
    shown.write_text('{"id": "a", "question": "Who is Meri?", "turns": []}\n{"role": "proposer", "id": "b"}\n')
    assert [trained_on(run).is_new(text) for text in ("who is meri", "Who is Tor?")] == [False, True]


def test_a_line_is_a_question_as_any_question_file_has_it(log):
    assert json.loads(log.path.read_text().splitlines()[2]) == {
        "id": "c",
        "question": "who is c ?",
        "golden_answers": ["meri", "Meri"],
        "metadata": {"requested": 2, "evidence": ["a#0"], "step": 4},
    }


def test_what_is_not_written_yet_is_nothing(tmp_path):
    log = QuestionLog(tmp_path / "questions.jsonl")
    assert log.read(1, 9) == []
    log.append(1, [])
    assert log.path.exists()
    assert log.read(1, 9) == []


def test_a_log_that_was_cut_goes_on_from_there(log):
    """As a resumed run cuts it: the lines of a step that was not kept are gone, and written anew."""
    first_two = b"".join(log.path.read_bytes().splitlines(keepends=True)[:2])
    log.path.write_bytes(first_two + b'{"id": "torn"')
    with pytest.raises(DataError, match=r"questions\.jsonl"):
        log.read(1, 4)
    log.path.write_bytes(first_two)
    assert log.read(1, 9) == [written("a", 1), written("b", 1)]
    log.append(4, [C])
    assert log.read(4, 4) == [written("c", 4)]


def test_a_step_does_not_read_the_whole_file_again(log, monkeypatch):
    """What is appended is known; another process' file is read once."""
    reads = []

    def counted(path):
        reads.append(path)
        return load_questions(path)

    monkeypatch.setattr("evoseek.selfplay.question_log.load_questions", counted)
    again = QuestionLog(log.path)
    for step in range(20, 25):
        for one in (log, again):
            assert [q.metadata["step"] for q in one.read(13, step)] == list(range(20, step))
        again.append(step, [question(f"new-{step}", pair=(1, 2))])
        log.read(0, 0)
    assert len(reads) == 1 + 5  # `again` once, and `log` whenever another had written
    assert again.read(0, 99) == load_questions(log.path)
    assert again.read(22, 22)[0].metadata == {"requested": 2, "evidence": ["a#0"], "pair": [1, 2], "step": 22}


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "questions.jsonl").mkdir()
    with pytest.raises(RunError, match=r"questions\.jsonl cannot be written .*run the same command again"):
        QuestionLog(tmp_path / "questions.jsonl").append(1, [A])


def test_text_of_any_script_survives(log):
    odd = Question("ö", 'wer ist "Ö\n\u2028"?', ("Ünal", "雪"), {"step": 0})
    log.append(20, [odd])
    assert log.read(20, 20)[0].golden_answers == ("Ünal", "雪")
    assert log.read(20, 20)[0].text == odd.text


def test_questions_of_the_test_set_are_not_given_to_train_on_and_stay_in_the_file(log):
    reserved = QuestionLog(log.path, reserved={"who is a ?"})
    assert reserved.read(1, 4) == [written("b", 1), written("c", 4)]
    assert load_questions(log.path)[0] == written("a", 1)
