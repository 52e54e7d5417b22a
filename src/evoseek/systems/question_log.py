"""The questions that self-play wrote: `questions.jsonl`, appended step by step, and read back by a resumed run.

Each line is a question as `evoseek.corpus.questions` reads it, with the `step` that wrote it in its metadata: the file
can be trained on, or handed on.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evoseek.corpus.questions import load_questions, question_row
from evoseek.errors import DataError, RunError
from evoseek.types import Question


@dataclass(frozen=True, slots=True)
class QuestionLog:
    """The file at `path`. Whoever goes back to a checkpoint cuts it to the length that it had then."""

    path: Path
    _known: dict[str, Question] = field(default_factory=dict[str, Question], init=False, repr=False, compare=False)

    def append(self, step: int, questions: Sequence[Question]) -> None:
        """Add the questions of a step. Raises RunError when the disk does not take them."""
        rows = [question_row(question) for question in questions]
        for row in rows:
            row["metadata"] = {**row["metadata"], "step": step}
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write("".join(json.dumps(row) + "\n" for row in rows))
        except OSError as error:
            raise RunError(
                f"{self.path} cannot be written ({error.strerror}). Free some space or check the permissions, then "
                "give the same command again: it resumes from the last checkpoint."
            ) from error

    def read(self, first: int, last: int) -> list[Question]:
        """The questions that the steps from `first` to `last` wrote. Raises DataError if the file is damaged."""
        if not self.path.exists() or self.path.stat().st_size == 0:
            return []
        return [q for q in load_questions(self.path) if first <= int(str(q.metadata["step"])) <= last]

    def find(self, id: str) -> Question:
        """The question with this id. Raises DataError if none was written."""
        if id not in self._known:
            self._known.update((question.id, question) for question in self.read(0, sys.maxsize))
        if id not in self._known:
            raise DataError(f"{self.path} has no question {id!r}: lines were removed. Restore the file from a copy.")
        return self._known[id]
