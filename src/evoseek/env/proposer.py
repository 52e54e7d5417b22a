"""The proposers' tasks: write a question with its answer, from a passage forwards or from an answer backwards.

A task is a `Question` with a `ProposerTask`, so that a proposal is rolled out, scored and recorded like any other
rollout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from evoseek.env.environments import PromptEnv
from evoseek.env.prompts import PromptSet
from evoseek.errors import DataError
from evoseek.protocols import Tool
from evoseek.types import Message, Passage, ProposerTask, Question


def passage_task(id: str, passage: Passage, hops: int, *, shown: bool = True) -> Question:
    """A task to write a question that takes `hops` hops: the first one in this passage, each other by a search. With 0
    hops the proposer chooses their number.

    If it is not `shown`, the proposer has to choose a subject by itself (an ablation in Dr. Zero), and the passage is
    not part of what it saw.
    """
    source = Passage(passage.id, passage.id, passage.title, passage.text)
    return Question(id, passage.contents, (), task=ProposerTask(hops, source, shown))


def answer_task(id: str, answer: str, searches: int) -> Question:
    """A task to write, by so many searches, a question that this answer answers."""
    return Question(id, answer, (answer,), task=ProposerTask(searches))


def task_of(question: Question, *, least: int = 0) -> ProposerTask:
    """The task that a question is. Raises DataError for another question, or if it requests less than that."""
    task = question.task
    if task is None or task.requested < least:
        raise DataError(
            f"The task {question.id!r} asks a proposer for {task and task.requested!r} hops or searches, but at least "
            f"{least} is needed. Make tasks with passage_task or answer_task."
        )
    return task


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
        task = task_of(question)
        hops, passage = task.requested, task.passage if task.shown else None
        title, text = (passage.title, passage.text) if passage else ("", "")
        number = {"hops": hops, "searches": hops - 1} if hops else {}  # a template that needs them is refused then
        return self._message(**number, title=title, text=text)


class AnswerProposerEnv(_Proposer):
    """An `Environment` for tasks made by `answer_task`: the proposer of Search Self-play (arXiv 2510.18821)."""

    def __init__(self, tools: Sequence[Tool], prompts: PromptSet, format: Literal["tags", "tools"] = "tags") -> None:
        super().__init__(tools, prompts, format, "proposer_answer")

    def messages(self, question: Question) -> list[Message]:
        """The prompt. Raises DataError for a task of another kind."""
        return self._message(answer=question.text, searches=task_of(question, least=1).requested)
