"""A question that follows earlier ones: the conversation so far comes before its prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evoseek.protocols import Environment, Tool
from evoseek.types import Message, Question


class HistoryEnv:
    """An `Environment` like another one, whose prompt begins with the messages of an earlier conversation. They are
    outside text: nothing in them becomes a control token or a tag."""

    def __init__(self, env: Environment, history: Sequence[Message]) -> None:
        self._env, self._history = env, tuple(history)

    @property
    def role(self) -> str:
        """That of the other environment."""
        return self._env.role

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Those of the other environment."""
        return self._env.tools

    def messages(self, question: Question) -> list[Message]:
        """The history, then the prompt."""
        return [*self._history, *self._env.messages(question)]

    def malformed(self, problem: str) -> str:
        """The other environment's notice."""
        return self._env.malformed(problem)
