"""A question file that grows batch by batch (`evoseek.corpus.resumable_jsonl`): one question a line, as
`evoseek.corpus.questions` reads them."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evoseek.corpus.questions import load_questions, question_row
from evoseek.corpus.resumable_jsonl import ResumableJsonl, open_growing_file
from evoseek.types import Question


@dataclass(frozen=True, slots=True)
class Reached:
    """The progress of a file: the batches made, what was counted in them, and the questions left over from the last
    one, which come first when more are requested."""

    batches: int = 0
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    spare: tuple[Question, ...] = ()


class QuestionFile:
    """An open file, locked against other processes; made by `open_question_file`."""

    def __init__(self, file: ResumableJsonl) -> None:
        self.path, self._file = file.path, file
        self.reached = _reached(file.reached) if file.reached else Reached()

    def questions(self) -> list[Question]:
        """What is written, in order. Raises DataError if a line was damaged."""
        return load_questions(self.path) if self._file.size else []

    def append(self, questions: Sequence[Question], reached: Reached) -> None:
        """Add a batch. Raises RunError when the disk does not take it: the same batch can then be added again."""
        spare = [question_row(question) for question in reached.spare]
        state = {"batches": reached.batches, "counts": reached.counts, "spare": spare}
        self._file.append_batch(map(question_row, questions), state)
        self.reached = reached


@contextmanager
def open_question_file(path: Path, settings: Mapping[str, object]) -> Generator[QuestionFile]:
    """A new file, or one to be resumed with the same settings. Raises the same errors as `open_growing_file`."""
    with open_growing_file(path, settings, {"batches": int, "counts": dict, "spare": list}) as file:
        yield QuestionFile(file)


def _reached(state: Mapping[str, Any]) -> Reached:
    spare = (Question(q["id"], q["question"], tuple(q["golden_answers"]), q["metadata"]) for q in state["spare"])
    return Reached(state["batches"], state["counts"], tuple(spare))
