"""The reader's task: answer a question from given passages, or from none, without searching."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from evoseek.env.prompts import PromptSet
from evoseek.protocols import Tool
from evoseek.types import Message, Passage, Question


class ReaderEnv:
    """An `Environment` without tools, for questions about these passages (none: a closed-book task).

    Its answers verify a proposed question: from the proposer's passages and some unrelated ones it must be found
    (Search Self-play, arXiv 2510.18821), without any it should not.
    """

    def __init__(
        self, passages: Sequence[Passage], prompts: PromptSet, format: Literal["tags", "tools"] = "tags"
    ) -> None:
        self._passages, self._template, self._format = tuple(passages), prompts["reader"], format
        self._prompts = prompts

    @property
    def role(self) -> str:
        """`reader`."""
        return "reader"

    @property
    def tools(self) -> Mapping[str, Tool]:
        """None."""
        return {}

    def messages(self, question: Question) -> list[Message]:
        """The prompt."""
        values = {"question": question.text, "passages": self._passages, "format": self._format}
        return [Message("user", self._template.marked(**values))]

    def malformed(self, problem: str) -> str:
        """The notice after a malformed turn."""
        return self._prompts.malformed(problem, role=self.role, tools=(), format=self._format)
