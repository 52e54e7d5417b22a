"""The questions that self-play wrote: `questions.jsonl`, appended step by step, and read back by a resumed run.

Each line is a question as `evoseek.corpus.questions` reads it, with the `step` that wrote it in its metadata: the file
can be trained on, or handed on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from evoseek.corpus.questions import load_questions, question_row
from evoseek.corpus.resumable_jsonl import ResumableJsonl
from evoseek.errors import DataError
from evoseek.types import Question

if TYPE_CHECKING:
    from evoseek.learner.distributed import Ranks


@dataclass(slots=True)
class QuestionLog:
    """The file at `path`. Resuming from a checkpoint cuts it to the length that it had then.

    Its contents are cached, and read again only when its length has changed. Of several `ranks` the first one writes;
    all read, once it has written.
    """

    path: Path
    ranks: Ranks | None = None
    _known: dict[str, Question] = field(default_factory=dict[str, Question], init=False, repr=False, compare=False)
    _size: int = field(default=0, init=False, repr=False, compare=False)  # bytes of the file that `_known` tells

    def append(self, step: int, questions: Sequence[Question]) -> None:
        """Add the questions of a step; a collective. Raises RunError when the disk does not take them."""
        if self.ranks is None or self.ranks.is_first:
            self._write(step, questions)
        if self.ranks is not None:
            self.ranks.barrier()

    def _write(self, step: int, questions: Sequence[Question]) -> None:
        rows = [_row(question, step) for question in questions]
        log = ResumableJsonl(self.path)
        is_known = log.size == self._size
        log.append(rows)
        if is_known:
            self._known.update((question.id, question) for question in map(_as_read, rows))
            self._size = log.size

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
        size = ResumableJsonl(self.path).size
        if size != self._size:
            self._known = {question.id: question for question in load_questions(self.path)} if size else {}
            self._size = size
        return self._known


def _row(question: Question, step: int) -> dict[str, object]:
    row = question_row(question)
    return {**row, "metadata": {**row["metadata"], "step": step}}


def _as_read(row: Mapping[str, object]) -> Question:
    """The question of a row as `load_questions` will read it."""
    read = json.loads(json.dumps(row))
    return Question(read["id"], read["question"].strip(), tuple(read["golden_answers"]), read["metadata"])
