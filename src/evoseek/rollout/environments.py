"""Environments that ask by one prompt: the solver's, with or without a first search, the reader's, the proposers', and
one with an earlier conversation before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from evoseek.errors import ConfigError, DataError
from evoseek.protocols import Environment, OpeningEnvironment, Tool
from evoseek.rollout.prompts import PromptSet
from evoseek.rollout.settings import EnvironmentContext, EnvironmentSettings
from evoseek.types import Message, Passage, ProposerTask, Question, ToolCall, ToolResult


class PromptEnv:
    """An `Environment` whose prompt is one user message, worded by a template of the prompt set. The template has the
    question, the renderer's format and `values`; `template` is its name."""

    role = "solver"

    def __init__(
        self,
        tools: Sequence[Tool],
        prompts: PromptSet,
        format: Literal["tags", "tools"],
        template: str,
        values: Mapping[str, object],
    ) -> None:
        self.tools: Mapping[str, Tool] = {tool.name: tool for tool in tools}
        self.template = template
        self._prompts, self._format, self._template, self._values = prompts, format, prompts[template], values

    def messages(self, question: Question) -> list[Message]:
        return self._message(question=question.text)

    def malformed(self, problem: str) -> str:
        return self._prompts.malformed(problem, role=self.role, tools=self.tools, format=self._format)

    def _message(self, **values: object) -> list[Message]:
        return [Message("user", self._template.marked(format=self._format, **values, **self._values))]


class SolverEnv(PromptEnv):
    """The solver's task: answer a question by searching.

    `prompt` names the template: `solver`, `solver_web` for the tools of the web, or `closed_book` without tools, which
    does not speak of searching. `max_calls` is the number of calls that a rollout has.
    """

    @classmethod
    def build(cls, settings: EnvironmentSettings, context: EnvironmentContext) -> SolverEnv:
        """The environment whose template fits the tools."""
        names = {tool.name for tool in context.tools}
        prompt = "closed_book" if not names else "solver_web" if names & {"web_search", "browse"} else "solver"
        return cls(context.tools, context.prompts, context.format, prompt=prompt, max_calls=context.max_calls)

    def __init__(
        self,
        tools: Sequence[Tool],
        prompts: PromptSet,
        format: Literal["tags", "tools"] = "tags",
        *,
        prompt: str = "solver",
        max_calls: int | None = None,
    ) -> None:
        super().__init__(tools, prompts, format, prompt, {"max_calls": max_calls})


class ReaderEnv(PromptEnv):
    """The reader's task, without tools: answer a question from these passages (none: a closed-book task).

    Its answers verify a proposed question: from the proposer's passages and some unrelated ones it must be found
    (Search Self-play, arXiv 2510.18821), without any it should not.
    """

    role = "reader"

    def __init__(
        self, passages: Sequence[Passage], prompts: PromptSet, format: Literal["tags", "tools"] = "tags"
    ) -> None:
        super().__init__((), prompts, format, "reader", {"passages": tuple(passages)})


class SearchFirstEnv(PromptEnv):
    """The solver's task with what a search for the question itself finds in its prompt: an `OpeningEnvironment`.

    A model that was never trained answers so where retrieval-augmented generation does, and a trained one begins there.
    The template has `passages` (none if nothing was found, or nothing fits) and `max_calls`, the number of searches
    that are left.
    """

    class Settings(EnvironmentSettings):
        """Those of any environment."""

        opens: ClassVar[bool] = True

    @classmethod
    def build(cls, settings: EnvironmentSettings, context: EnvironmentContext) -> SearchFirstEnv | SolverEnv:
        """The environment; without any tool the solver's. Raises ConfigError without the tool search among others."""
        if not context.tools:
            return SolverEnv.build(settings, context)
        return cls(context.tools, context.prompts, context.format, max_calls=context.max_calls)

    def __init__(
        self,
        tools: Sequence[Tool],
        prompts: PromptSet,
        format: Literal["tags", "tools"] = "tags",
        *,
        max_calls: int | None = None,
    ) -> None:
        super().__init__(tools, prompts, format, "search_first", {"max_calls": max_calls})
        if "search" not in self.tools:
            raise ConfigError(
                f"The environment search_first needs the tool search, but the tools are {', '.join(self.tools)}. Add "
                'search to tools, or set environment.name to "solver".'
            )

    def opening(self, question: Question) -> Sequence[ToolCall]:
        return (ToolCall("search", {"query": question.text}),)

    def messages(self, question: Question) -> list[Message]:
        return self.opened(question, ())

    def opened(self, question: Question, results: Sequence[ToolResult]) -> list[Message]:
        passages = tuple(passage for result in results for passage in result.passages)
        return self._message(question=question.text, passages=passages)


class HistoryEnv:
    """An `Environment` like another one, whose prompt begins with the messages of an earlier conversation. They are
    outside text: nothing in them becomes a control token or a tag."""

    def __init__(self, env: Environment, history: Sequence[Message]) -> None:
        self._env, self._history = env, tuple(history)
        self.role, self.tools = env.role, env.tools

    def messages(self, question: Question) -> list[Message]:
        return [*self._history, *self._env.messages(question)]

    def malformed(self, problem: str) -> str:
        return self._env.malformed(problem)


class _OpeningHistoryEnv(HistoryEnv):
    def __init__(self, env: OpeningEnvironment, history: Sequence[Message]) -> None:
        super().__init__(env, history)
        self.opening = env.opening
        self._opened = env.opened

    def opened(self, question: Question, results: Sequence[ToolResult]) -> list[Message]:
        return [*self._history, *self._opened(question, results)]


def after(history: Sequence[Message], env: Environment) -> Environment:
    """The environment whose prompt begins with these messages."""
    if isinstance(env, OpeningEnvironment):
        return _OpeningHistoryEnv(env, history) if history else env
    return HistoryEnv(env, history) if history else env


def passage_task(id: str, passage: Passage, hops: int, *, shown: bool = True) -> Question:
    """A task to write a question that takes `hops` hops: the first one in this passage, each other by a search. With 0
    hops the proposer chooses their number.

    If it is not `shown`, the proposer has to choose a subject by itself (an ablation in Dr. Zero), and the passage is
    not part of what it saw.
    """
    source = Passage(passage.id, passage.id, passage.label, passage.text)
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
    """A proposer's environment: the prompt of this name, with its examples."""

    role = "proposer"
    name: ClassVar[str]

    def __init__(self, tools: Sequence[Tool], prompts: PromptSet, format: Literal["tags", "tools"] = "tags") -> None:
        super().__init__(tools, prompts, format, self.name, {"examples": prompts.examples(self.name)})


class PassageProposerEnv(_Proposer):
    """An `Environment` for tasks made by `passage_task`: Dr. Zero's proposer (arXiv 2601.07055, section 3)."""

    name = "proposer_passage"

    def messages(self, question: Question) -> list[Message]:
        """The prompt. Raises DataError for a task of another kind."""
        task = task_of(question)
        hops, passage = task.requested, task.passage if task.shown else None
        title, text = (passage.title, passage.text) if passage else ("", "")
        number = {"hops": hops, "searches": hops - 1} if hops else {}  # a template that needs them is refused then
        return self._message(**number, title=title, text=text)


class AnswerProposerEnv(_Proposer):
    """An `Environment` for tasks made by `answer_task`: the proposer of Search Self-play (arXiv 2510.18821)."""

    name = "proposer_answer"

    def messages(self, question: Question) -> list[Message]:
        """The prompt. Raises DataError for a task of another kind."""
        return self._message(answer=question.text, searches=task_of(question, least=1).requested)
