"""A model that is asked in the policy's place."""

from __future__ import annotations

from dataclasses import dataclass

from evoseek.env.context import EnvironmentContext
from evoseek.errors import ConfigError
from evoseek.protocols import Chat, Environment
from evoseek.registry import build
from evoseek.rollout.agent import limits_of
from evoseek.rollout.conversation import converse
from evoseek.rollout.limits import Limits
from evoseek.run import asked_engine
from evoseek.training.context import Context
from evoseek.training.settings import TrainingSettings
from evoseek.types import Question, Trajectory


@dataclass(frozen=True, slots=True)
class AskedModel:
    """A model that is written to, with an environment."""

    chat: Chat
    env: Environment
    limits: Limits

    async def ask(self, text: str) -> Trajectory:
        """Answer one question."""
        question = Question("ask", text, ())
        return await converse(question, env=self.env, chat=self.chat, limits=self.limits, trajectory_id="ask")


def is_asked(settings: TrainingSettings) -> bool:
    """Whether the model of [asked] is to answer. Raises ConfigError if something is set of it, but not who it is."""
    asked = settings.asked
    if asked.model or asked.base_url:
        return True
    before = type(asked)()
    changed = [key for key in type(asked).model_fields if getattr(asked, key) != getattr(before, key)]
    if changed:
        raise ConfigError(
            f"asked.{changed[0]} is set, but neither asked.model nor asked.base_url: who is to be asked? Set "
            "asked.model (and asked.base_url, if it is behind an endpoint), or leave [asked] out to ask the policy."
        )
    return False


def asked_model(context: Context) -> AskedModel:
    """The model of [asked], at work on the web or on the index. Raises ConfigError, PolicyError or SearchIndexError."""
    settings = context.settings
    chat, prompts = context.chat("asked")
    tools = context.tools(prompts, asked_engine(context))
    env = build("environment", settings.environment, EnvironmentContext(tools, prompts, "tags"))
    return AskedModel(chat, env, limits_of(settings.rollout, prompts))
