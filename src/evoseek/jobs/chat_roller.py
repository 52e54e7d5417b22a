"""The model of [answerer], which answers instead of the policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from evoseek.env.base import EnvironmentContext
from evoseek.env.environments import HistoryEnv
from evoseek.env.prompts import PromptSet
from evoseek.errors import ConfigError
from evoseek.protocols import Chat, Environment, QuestionEngine, SearchEngine
from evoseek.registry import build
from evoseek.rollout.agent import limits_of
from evoseek.rollout.calls import Watch, unwatched
from evoseek.rollout.limits import Limits
from evoseek.rollout.run import converse
from evoseek.training.context import Context
from evoseek.training.settings import TrainingSettings
from evoseek.types import Message, Question, Trajectory


@dataclass(frozen=True, slots=True)
class ChatRoller:
    """A chat model with an environment."""

    chat: Chat
    env: Environment
    limits: Limits

    def after(self, history: Sequence[Message]) -> ChatRoller:
        """The same model for a question that follows earlier messages."""
        return replace(self, env=HistoryEnv(self.env, history)) if history else self

    async def one(self, question: Question, trajectory_id: str, *, watch: Watch = unwatched) -> Trajectory:
        """One rollout; see `converse`."""
        return await converse(
            question, env=self.env, chat=self.chat, limits=self.limits, trajectory_id=trajectory_id, watch=watch
        )


def uses_chat_model(settings: TrainingSettings) -> bool:
    """Whether the model of [answerer] is to answer. Raises ConfigError if some of its settings are set, but not
    its model."""
    answerer = settings.answerer
    if answerer.model or answerer.base_url:
        return True
    before = type(answerer)()
    changed = [key for key in type(answerer).model_fields if getattr(answerer, key) != getattr(before, key)]
    if changed:
        raise ConfigError(
            f"answerer.{changed[0]} is set, but neither answerer.model nor answerer.base_url. Set answerer.model (and "
            "answerer.base_url, if it is behind an endpoint), or leave [answerer] out to ask the policy."
        )
    return False


def chat_roller(context: Context, engine: SearchEngine | QuestionEngine | None, search: bool = True) -> ChatRoller:
    """The model of [answerer], which searches with this engine or the web, or not at all. Raises ConfigError,
    PolicyError or SearchIndexError."""
    chat, prompts = context.chat("answerer")
    env, limits = chat_environment(context, prompts, engine, search)
    return ChatRoller(chat, env, limits)


def chat_environment(
    context: Context, prompts: PromptSet, engine: SearchEngine | QuestionEngine | None, search: bool = True
) -> tuple[Environment, Limits]:
    """The environment of a chat model with these prompts, which searches with this engine or the web, or not at all,
    and the limits of its rollouts. Raises ConfigError."""
    settings, tools = context.settings, context.tools(prompts, engine) if search else []
    limits = limits_of(settings.rollout, prompts)
    env = build("environment", settings.environment, EnvironmentContext(tools, prompts, "tags", limits.calls))
    return env, limits
