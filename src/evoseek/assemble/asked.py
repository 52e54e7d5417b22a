"""From settings to a model that is asked in the policy's place."""

from __future__ import annotations

from dataclasses import dataclass

from evoseek.assemble.agent import limits_of, search_tool
from evoseek.assemble.chat import make_chat
from evoseek.assemble.sources import open_index
from evoseek.assemble.web import Web
from evoseek.config import Config
from evoseek.env.solver import SolverEnv
from evoseek.errors import ConfigError
from evoseek.protocols import Chat
from evoseek.rollout.conversation import converse
from evoseek.rollout.limits import Limits
from evoseek.types import Question, Trajectory


@dataclass(frozen=True, slots=True)
class AskedModel:
    """A model that is written to, with an environment."""

    chat: Chat
    env: SolverEnv
    limits: Limits

    async def ask(self, text: str) -> Trajectory:
        """Answer one question."""
        question = Question("ask", text, ())
        return await converse(question, env=self.env, chat=self.chat, limits=self.limits, trajectory_id="ask")


def asked_model(config: Config, web: Web | None) -> AskedModel | None:
    """The model of [asked], at work on the web or on the config's index; None if the policy is asked.

    Raises ConfigError, PolicyError or SearchIndexError.
    """
    asked = config.asked
    if not (asked.model or asked.base_url):
        if changed := asked.changed():
            raise ConfigError(
                f"asked.{changed[0]} is set, but neither asked.model nor asked.base_url: who is to be asked? Set "
                "asked.model (and asked.base_url, if it is behind an endpoint), or leave [asked] out to ask the policy."
            )
        return None
    chat, prompts = make_chat(asked, section="asked", seed=config.run.seed, device=config.policy.device)
    if web is not None:
        env = SolverEnv(web.tools(config, prompts), prompts, prompt="solver_web")
    else:
        index = open_index(config.search.index, setting="--index")
        env = SolverEnv([search_tool(config.search, prompts, index)], prompts)
    return AskedModel(chat, env, limits_of(config.rollout, prompts))
