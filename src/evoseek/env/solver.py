"""The solver's task: answer a question by searching."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from evoseek.env.context import EnvironmentContext
from evoseek.env.prompts import PromptSet
from evoseek.env.settings import EnvironmentSettings
from evoseek.protocols import Tool
from evoseek.types import Message, Question


class SolverEnv:
    """An `Environment` that asks the question in one user message, worded by the prompt set for the renderer's format.

    `prompt` names the template: `solver`, `solver_web` for the tools of the web, or `closed_book` without tools, which
    does not speak of searching. `max_calls` is the number of calls that a rollout has.
    """

    class Settings(EnvironmentSettings):
        """Settings of the solver's environment."""

        prompt: str = Field(
            default="solver", description="Name of the prompt template; solver_web is for the tools of the web."
        )
        closed_book: str = Field(
            default="closed_book",
            description="Name of the prompt template without tools, as in evoseek eval --no-search.",
        )

    @classmethod
    def build(cls, settings: Settings, context: EnvironmentContext) -> SolverEnv:
        """From settings."""
        prompt = settings.prompt if context.tools else settings.closed_book
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
        self._tools = {tool.name: tool for tool in tools}
        self._prompts, self._template, self._format = prompts, prompts[prompt], format
        self._max_calls = max_calls

    @property
    def role(self) -> str:
        """`solver`."""
        return "solver"

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Tools by name."""
        return self._tools

    def messages(self, question: Question) -> list[Message]:
        """The prompt."""
        values = {"question": question.text, "format": self._format, "max_calls": self._max_calls}
        return [Message("user", self._template.marked(**values))]

    def malformed(self, problem: str) -> str:
        """The notice after a malformed turn."""
        return self._prompts.malformed(problem, role=self.role, tools=self._tools, format=self._format)
