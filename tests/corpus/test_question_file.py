"""A question file that is written batch by batch: whatever ends the process, it goes on without a gap or a double."""

import errno
import json
from pathlib import Path

import pytest

from evoseek.corpus.growing_file import GrowingFile
from evoseek.corpus.question_file import QuestionFile, Reached, open_question_file
from evoseek.corpus.questions import load_questions
from evoseek.errors import ConfigError, RunError, RunLockedError
from evoseek.types import Question

SETTINGS = {"policy": {"model": "tiny"}, "run": {"seed": 0}}
QUESTIONS = [Question(f"q{n}", f"Wo liegt Städtchen {n}?", (f"Tal {n}",), {"requested": n}) for n in range(1, 6)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out" / "questions.jsonl"


@pytest.fixture
def begun(path: Path) -> Path:
    """Two batches: two questions, then two and one to spare."""
    with open_question_file(path, SETTINGS) as file:
        file.append(QUESTIONS[:2], Reached(1, {"valid": 2}))
        file.append(QUESTIONS[2:4], Reached(2, {"valid": 5, "too_short": 1}, (QUESTIONS[4],)))
    return path


def test_it_is_gone_on_with_where_it_was_left(begun: Path) -> None:
    with open_question_file(begun, SETTINGS) as file:
        assert file.reached == Reached(2, {"valid": 5, "too_short": 1}, (QUESTIONS[4],))
        assert file.questions() == QUESTIONS[:4]
        file.append(file.reached.spare, Reached(2, {"valid": 5}))
    assert load_questions(begun) == QUESTIONS


def test_a_batch_without_questions_counts(path: Path) -> None:
    with open_question_file(path, SETTINGS) as file:
        assert file.questions() == []
        file.append([], Reached(1, {"unfinished": 8}))
    assert path.read_bytes() == b""
    with open_question_file(path, SETTINGS) as file:
        assert file.reached == Reached(1, {"unfinished": 8})


def test_however_much_of_the_last_batch_was_written_the_rest_is_added(begun: Path) -> None:
    whole = begun.read_bytes()
    last = whole.index(b'{"id": "q3"')
    for length in range(last, len(whole) + 1):
        begun.write_bytes(whole[:length])
        with open_question_file(begun, SETTINGS):
            pass
        assert begun.read_bytes() == whole


def test_a_disk_that_is_full_is_said_and_the_batch_can_be_added_again(path: Path) -> None:
    class Full:
        """A disk with room for half of a batch."""

        def __init__(self, file) -> None:
            self.file, self.room = file, 40

        def fileno(self) -> int:
            return self.file.fileno()

        def write(self, data: bytes) -> int:
            if self.room == 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            written = self.file.write(data[: self.room])
            self.room -= written
            return written

    path.parent.mkdir()
    with path.open("a+b", buffering=0) as file:
        full = QuestionFile(GrowingFile(path, Full(file), SETTINGS))  # pyright: ignore[reportArgumentType]
        with pytest.raises(RunError, match="No space left on device"):
            full.append(QUESTIONS[:2], Reached(1, {"valid": 2}))
        assert full.reached == Reached()
    assert path.stat().st_size == 40
    with open_question_file(path, SETTINGS) as opened:
        assert opened.questions() == QUESTIONS[:2]


def test_what_somebody_else_wrote_is_left_as_it_is(begun: Path) -> None:
    whole, foreign = begun.read_bytes(), begun.with_name("notes.jsonl")
    foreign.write_text("mine\n")
    with pytest.raises(ConfigError, match="is there already"), open_question_file(foreign, SETTINGS):
        pass
    assert foreign.read_text() == "mine\n"
    for other in (whole + b"mine\n", whole[:50], b"", b"mine\n"):
        begun.write_bytes(other)
        with pytest.raises(RunError, match="was changed"), open_question_file(begun, SETTINGS):
            pass
        assert begun.read_bytes() == other
    with pytest.raises(ConfigError, match="no file"), open_question_file(begun.parent, SETTINGS):
        pass


def test_other_settings_are_named(begun: Path) -> None:
    others = {**SETTINGS, "run": {"seed": 1}}
    with pytest.raises(ConfigError, match=r"run\.seed was 0, now 1"), open_question_file(begun, others):
        pass


def test_one_process_at_a_time(begun: Path) -> None:
    first = open_question_file(begun, SETTINGS)
    with first, pytest.raises(RunLockedError, match="Another process"), open_question_file(begun, SETTINGS):
        pass
    with open_question_file(begun, SETTINGS):
        pass


def test_a_file_that_was_removed_is_begun_anew(begun: Path) -> None:
    begun.unlink()
    with open_question_file(begun, {"run": {"seed": 7}}) as file:
        assert file.reached == Reached()
        file.append(QUESTIONS[:1], Reached(1, {"valid": 1}))
    assert load_questions(begun) == QUESTIONS[:1]


@pytest.mark.parametrize("text", ["", "[]", '{"settings": {}}', "\x00", json.dumps({"place": "3"})])
def test_a_damaged_state_is_said(begun: Path, text: str) -> None:
    begun.with_name(f"{begun.name}.state.json").write_text(text)
    with pytest.raises(RunError, match="damaged"), open_question_file(begun, SETTINGS):
        pass


def test_a_folder_that_cannot_be_made_is_said(begun: Path) -> None:
    with pytest.raises(RunError, match="cannot be written"), open_question_file(begun / "x.jsonl", SETTINGS):
        pass
