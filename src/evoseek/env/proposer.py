"""The proposers' tasks: write a question with its answer, from a passage forwards or from an answer backwards.

A task is a `Question`, so that a proposal is rolled out, scored and recorded like any other rollout. Its metadata
states the requested length (`requested`: hops or searches; 0: the proposer's choice) and, for a passage, which one it
is and whether the proposer is `shown` it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from evoseek.env.prompts import PromptSet
from evoseek.errors import DataError
from evoseek.protocols import Tool
from evoseek.types import Message, Passage, Question


def passage_task(id: str, passage: Passage, hops: int, *, shown: bool = True) -> Question:
    """A task to write a question that takes `hops` hops: the first one in this passage, each other by a search. With 0
    hops the proposer chooses their number.

    If it is not `shown`, the proposer has to choose a subject by itself (an ablation in Dr. Zero), and the passage is
    not part of what it saw.
    """
    source = {"title": passage.title, "text": passage.text, "passage_id": passage.id, "shown": shown}
    return Question(id, passage.contents, (), {"requested": hops, **source})


def answer_task(id: str, answer: str, searches: int) -> Question:
    """A task to write, by so many searches, a question that this answer answers."""
    return Question(id, answer, (answer,), {"requested": searches})


class _Proposer:
    """What the two proposers share: the tools, a prompt and its examples."""

    def __init__(self, tools: Sequence[Tool], prompts: PromptSet, name: str, format: Literal["tags", "tools"]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._template, self._examples, self._format = prompts[name], prompts.examples(name), format
        self._prompts = prompts

    @property
    def role(self) -> str:
        """`proposer`."""
        return "proposer"

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Tools by name."""
        return self._tools

    def malformed(self, problem: str) -> str:
        """The notice after a malformed turn."""
        return self._prompts.malformed(problem, role=self.role, tools=self._tools, format=self._format)

    def _ask(self, **values: object) -> list[Message]:
        return [Message("user", self._template.marked(**values, examples=self._examples, format=self._format))]


class PassageProposerEnv(_Proposer):
    """An `Environment` for tasks made by `passage_task`: Dr. Zero's proposer (arXiv 2601.07055, section 3)."""

    def __init__(self, tools: Sequence[Tool], prompts: PromptSet, format: Literal["tags", "tools"] = "tags") -> None:
        super().__init__(tools, prompts, "proposer_passage", format)

    def messages(self, question: Question) -> list[Message]:
        """The prompt. Raises DataError for a task of another kind."""
        hops, task = _requested(question, least=0), question.metadata
        title, text = (str(task.get(key, "")) if task.get("shown", True) else "" for key in ("title", "text"))
        number = {"hops": hops, "searches": hops - 1} if hops else {}  # a template that needs them is refused then
        return self._ask(**number, title=title, text=text)


class AnswerProposerEnv(_Proposer):
    """An `Environment` for tasks made by `answer_task`: the proposer of Search Self-play (arXiv 2510.18821)."""

    def __init__(self, tools: Sequence[Tool], prompts: PromptSet, format: Literal["tags", "tools"] = "tags") -> None:
        super().__init__(tools, prompts, "proposer_answer", format)

    def messages(self, question: Question) -> list[Message]:
        """The prompt. Raises DataError for a task of another kind."""
        return self._ask(answer=question.text, searches=_requested(question, least=1))


def _requested(task: Question, *, least: int) -> int:
    requested = task.metadata.get("requested")
    if not isinstance(requested, int) or requested < least:
        raise DataError(
            f"The task {task.id!r} asks a proposer for {requested!r} hops or searches, but at least {least} is needed "
            "(its metadata holds the number as `requested`). Make tasks with passage_task or answer_task."
        )
    return requested
