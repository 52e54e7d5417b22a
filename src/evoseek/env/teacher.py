"""The solver's task with a view of the way: the question, and the passages from which it was made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from evoseek.env.prompts import PromptSet
from evoseek.types import Message, Passage, Question


class TeacherEnv:
    """Words the prompt of the policy that teaches itself; nothing is ever rolled out here."""

    def __init__(self, passages: Sequence[Passage], prompts: PromptSet, format: Literal["tags", "tools"]) -> None:
        self._passages, self._template, self._format = tuple(passages), prompts["teacher"], format

    def messages(self, question: Question) -> list[Message]:
        """The prompt."""
        text = self._template.marked(question=question.text, passages=self._passages, format=self._format)
        return [Message("user", text)]
