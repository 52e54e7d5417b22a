"""The proposers' tasks: write a question with its answer, from a passage forwards or from an answer backwards.

A task is a `Question`, so that a proposal is rolled out, scored and recorded like any other rollout. Its metadata
states the requested length (`requested`: hops or searches; 0: the proposer's choice) and, for a passage, which one it
is and whether the proposer is `shown` it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from evoseek.env.environments import PromptEnv
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


class _Proposer(PromptEnv):
    """A proposer's environment: a prompt with its examples."""

    role = "proposer"

    def __init__(self, tools: Sequence[Tool], prompts: PromptSet, format: Literal["tags", "tools"], name: str) -> None:
        super().__init__(tools, prompts, format, name, {"examples": prompts.examples(name)})


class PassageProposerEnv(_Proposer):
    """An `Environment` for tasks made by `passage_task`: Dr. Zero's proposer (arXiv 2601.07055, section 3)."""

    def __init__(self, tools: Sequence[Tool], prompts: PromptSet, format: Literal["tags", "tools"] = "tags") -> None:
        super().__init__(tools, prompts, format, "proposer_passage")

    def messages(self, question: Question) -> list[Message]:
        """The prompt. Raises DataError for a task of another kind."""
        hops, task = _requested(question, least=0), question.metadata
        title, text = (str(task.get(key, "")) if task.get("shown", True) else "" for key in ("title", "text"))
        number = {"hops": hops, "searches": hops - 1} if hops else {}  # a template that needs them is refused then
        return self._message(**number, title=title, text=text)


class AnswerProposerEnv(_Proposer):
    """An `Environment` for tasks made by `answer_task`: the proposer of Search Self-play (arXiv 2510.18821)."""

    def __init__(self, tools: Sequence[Tool], prompts: PromptSet, format: Literal["tags", "tools"] = "tags") -> None:
        super().__init__(tools, prompts, format, "proposer_answer")

    def messages(self, question: Question) -> list[Message]:
        """The prompt. Raises DataError for a task of another kind."""
        return self._message(answer=question.text, searches=_requested(question, least=1))


def _requested(task: Question, *, least: int) -> int:
    requested = task.metadata.get("requested")
    if not isinstance(requested, int) or requested < least:
        raise DataError(
            f"The task {task.id!r} asks a proposer for {requested!r} hops or searches, but at least {least} is needed "
            "(its metadata holds the number as `requested`). Make tasks with passage_task or answer_task."
        )
    return requested
