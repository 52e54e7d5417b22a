"""Environments with one prompt: the solver's, with or without a first search, the reader's, the proposers', one that
continues a conversation, and one that rewrites a question inside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from evoseek.errors import ConfigError, DataError
from evoseek.protocols import Environment, OpeningEnvironment, RewritingEnvironment, Tool
from evoseek.renderers.tags import own_tools
from evoseek.rollout.prompts import PromptSet
from evoseek.rollout.settings import EnvironmentContext, EnvironmentSettings
from evoseek.types import ContextTurn, Message, Passage, ProposerTask, Question, ToolCall, ToolResult


class PromptEnv:
    """An `Environment` whose prompt is one user message from the prompt set's template of this name. The template gets
    the question, the renderer's format, `values`, whether it `has_search`, and in the format tags the `own_tools`."""

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
        own = own_tools([tool.schema for tool in tools]) if format == "tags" else []
        self._values = {**values, "has_search": "search" in self.tools or not own, "own_tools": own}
        self._prompts, self._format, self._template = prompts, format, prompts[template]

    def messages(self, question: Question) -> list[Message]:
        return self._message(question=question.text)

    def malformed(self, problem: str) -> str:
        return self._prompts.malformed(problem, role=self.role, tools=self.tools, format=self._format)

    def _message(self, **values: object) -> list[Message]:
        return [Message("user", self._template.marked(format=self._format, **values, **self._values))]


class SolverEnv(PromptEnv):
    """The solver's task: answer a question by searching.

    `prompt` names the template: `solver`, `solver_web` for web tools, or `closed_book` without tools, which does not
    mention searching. `max_calls` is a rollout's number of calls.
    """

    @classmethod
    def build(cls, settings: EnvironmentSettings, context: EnvironmentContext) -> SolverEnv:
        """Return the environment whose template fits the tools."""
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


class NotesEnv(SolverEnv):
    """The solver's task with a context that is rewritten when it is full (rollout.max_total_tokens), so that a search
    can be longer: a `RewritingEnvironment`.

    Of the turns, the last one stays; then, as far as they fit, calls of the tool `note`, and then all others, the
    newest first. Without that tool, the oldest turns leave.
    """

    def rewritten(self, turns: Sequence[ContextTurn], room: int) -> list[ContextTurn]:
        *others, last = range(len(turns))
        notes = [place for place in others if any(call.name == "note" for call in turns[place].action.tool_calls)]
        kept, left = {last}, room - len(turns[last].token_ids)
        for place in sorted(others, key=lambda place: (place in notes, place), reverse=True):
            if len(turns[place].token_ids) > left:
                break
            kept.add(place)
            left -= len(turns[place].token_ids)
        return [turns[place] for place in sorted(kept)]


class ReaderEnv(PromptEnv):
    """The reader's task, without tools: answer a question from these passages (none: a closed-book task).

    Its answers verify a proposed question (Search Self-play, arXiv 2510.18821): with the proposer's passages and some
    unrelated ones the reader must find the answer, without passages it should not.
    """

    role = "reader"

    def __init__(
        self, passages: Sequence[Passage], prompts: PromptSet, format: Literal["tags", "tools"] = "tags"
    ) -> None:
        super().__init__((), prompts, format, "reader", {"passages": tuple(passages)})


class SearchFirstEnv(PromptEnv):
    """The solver's task with what a search for the question itself finds in its prompt: an `OpeningEnvironment`.

    An untrained model then answers like retrieval-augmented generation, and training begins there. The template gets
    `passages` (none if nothing was found or fits) and `max_calls`, the number of searches left.
    """

    class Settings(EnvironmentSettings):
        """Settings of the environment: the name."""

        opens: ClassVar[bool] = True

    @classmethod
    def build(cls, settings: EnvironmentSettings, context: EnvironmentContext) -> SearchFirstEnv | SolverEnv:
        """Return the environment; without any tool, the solver's. Raises ConfigError for tools without search."""
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


class FollowUpEnv(PromptEnv):
    """The task to rewrite a question inside a conversation as one that stands alone, without tools. It is an
    `OpeningEnvironment` that searches nothing, so that a turn without tags is the rewritten question."""

    def __init__(self, prompts: PromptSet, history: Sequence[Message]) -> None:
        super().__init__((), prompts, "tags", "follow_up", {"history": tuple(history)})

    def opening(self, question: Question) -> Sequence[ToolCall]:
        return ()

    def opened(self, question: Question, results: Sequence[ToolResult]) -> list[Message]:
        return self.messages(question)


class HistoryEnv:
    """An `Environment` that puts the messages of an earlier conversation before another one's prompt. They are outside
    text: nothing in them becomes a control token or a tag."""

    def __init__(self, env: Environment, history: Sequence[Message]) -> None:
        self._env, self._history = env, tuple(history)
        self.role, self.tools = env.role, env.tools
        if isinstance(env, RewritingEnvironment):
            self.rewritten = env.rewritten

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
    """Put these messages before an environment's prompt."""
    if isinstance(env, OpeningEnvironment):
        return _OpeningHistoryEnv(env, history) if history else env
    return HistoryEnv(env, history) if history else env


def passage_task(id: str, passage: Passage, hops: int, *, shown: bool = True) -> Question:
    """Return a task to write a question of `hops` hops: the first in this passage, each further one by a search. With 0
    the proposer chooses the number.

    If the passage is not `shown`, the proposer chooses a subject itself (an ablation in Dr. Zero).
    """
    source = Passage(passage.id, passage.id, passage.label, passage.text)
    return Question(id, passage.contents, (), task=ProposerTask(hops, source, shown))


def answer_task(id: str, answer: str, searches: int) -> Question:
    """Return a task to write, with `searches` searches, a question with this answer."""
    return Question(id, answer, (answer,), task=ProposerTask(searches))


def task_of(question: Question, *, least: int = 0) -> ProposerTask:
    """Return a question's task. Raises DataError for a question without one, or one that requests less than `least`."""
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
        """Return the prompt. Raises DataError for a task of another kind."""
        task = task_of(question)
        hops, passage = task.requested, task.passage if task.shown else None
        title, text = (passage.title, passage.text) if passage else ("", "")
        number = {"hops": hops, "searches": hops - 1} if hops else {}  # a template that uses them fails without
        return self._message(**number, title=title, text=text)


class AnswerProposerEnv(_Proposer):
    """An `Environment` for tasks made by `answer_task`: the proposer of Search Self-play (arXiv 2510.18821)."""

    name = "proposer_answer"

    def messages(self, question: Question) -> list[Message]:
        """Return the prompt. Raises DataError for a task of another kind."""
        return self._message(answer=question.text, searches=task_of(question, least=1).requested)
