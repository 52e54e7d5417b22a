"""How a reading agent is asked about a segment of a page."""

from __future__ import annotations

from evoseek.env.prompts import PromptSet
from evoseek.types import Message


class ReadingPrompts:
    """A `ReadingPrompt` from the file reading.jinja of a prompt set."""

    def __init__(self, prompts: PromptSet) -> None:
        self._template = prompts["reading"]

    def __call__(self, *, task: str, title: str, memory: str, segment: str) -> list[Message]:
        """One user message."""
        return [Message("user", self._template.marked(task=task, title=title, memory=memory, segment=segment))]
