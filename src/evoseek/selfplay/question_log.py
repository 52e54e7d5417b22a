"""The questions that self-play wrote: `questions.jsonl`, appended step by step, and read back by a resumed run.

Each line is a question as `evoseek.corpus.questions` reads it, with the `step` that wrote it in its metadata: the file
can be trained on, or handed on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evoseek.corpus.questions import load_questions, question_row
from evoseek.errors import DataError, RunError
from evoseek.types import Question


@dataclass(slots=True)
class QuestionLog:
    """The file at `path`. Whoever goes back to a checkpoint cuts it to the length that it had then.

    What it says is remembered and read anew only when its length is not the one that was left.
    """

    path: Path
    _known: dict[str, Question] = field(default_factory=dict[str, Question], init=False, repr=False, compare=False)
    _size: int = field(default=0, init=False, repr=False, compare=False)  # bytes of the file that `_known` tells

    def append(self, step: int, questions: Sequence[Question]) -> None:
        """Add the questions of a step. Raises RunError when the disk does not take them."""
        rows = [question_row(question) for question in questions]
        for row in rows:
            row["metadata"] = {**row["metadata"], "step": step}
        lines = [json.dumps(row) for row in rows]
        try:
            with self.path.open("ab") as file:
                before = file.tell()
                file.write("".join(line + "\n" for line in lines).encode())
                after = file.tell()
        except OSError as error:
            raise RunError(
                f"{self.path} cannot be written ({error.strerror}). Free some space or check the permissions, then "
                "give the same command again: it resumes from the last checkpoint."
            ) from error
        if before == self._size:
            self._known.update((question.id, question) for question in map(_from_line, lines))
            self._size = after

    def read(self, first: int, last: int) -> list[Question]:
        """The questions that the steps from `first` to `last` wrote. Raises DataError if the file is damaged."""
        return [q for q in self._all().values() if first <= int(str(q.metadata["step"])) <= last]

    def find(self, id: str) -> Question:
        """The question with this id. Raises DataError if none was written."""
        if id not in self._all():
            raise DataError(f"{self.path} has no question {id!r}: lines were removed. Restore the file from a copy.")
        return self._known[id]

    def _all(self) -> dict[str, Question]:
        """By id, in the order of the file."""
        size = self.path.stat().st_size if self.path.exists() else 0
        if size != self._size:
            self._known = {question.id: question for question in load_questions(self.path)} if size else {}
            self._size = size
        return self._known


def _from_line(line: str) -> Question:
    """As `load_questions` reads what was written."""
    row = json.loads(line)
    return Question(row["id"], row["question"].strip(), tuple(row["golden_answers"]), row["metadata"])
