"""A policy that can be rolled out: with its sampler, its prompts and its limits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

from evoseek.assembly.settings import TOO_LONG, TrainingSettings
from evoseek.config.registry import build
from evoseek.errors import ConfigError
from evoseek.models.load import prepare_process
from evoseek.models.policy import Policy, SamplerContext, SamplerRun, eos_ids, prompts_of
from evoseek.protocols import Environment, Renderer, Sampler, Tool
from evoseek.renderers.chat_template import check_template
from evoseek.renderers.conversation import Conversation
from evoseek.renderers.tags import TagRenderer
from evoseek.renderers.tool_calls import ToolCallRenderer, make_renderer
from evoseek.rollout.environments import AnswerProposerEnv, PassageProposerEnv
from evoseek.rollout.gateway.agents import as_agent
from evoseek.rollout.gateway.attempts import AgentRunner
from evoseek.rollout.gateway.server import GATEWAY
from evoseek.rollout.limits import Limits
from evoseek.rollout.prompts import PromptSet, load_prompts
from evoseek.rollout.roller import Roller
from evoseek.rollout.settings import EnvironmentContext, RolloutSettings


@dataclass(frozen=True, slots=True)
class Agent:
    """A policy with its sampler and its prompts."""

    settings: TrainingSettings
    policy: Policy
    sampler: Sampler
    prompts: PromptSet
    limits: Limits

    @classmethod
    def of(
        cls,
        settings: TrainingSettings,
        policy: Policy,
        *,
        lockstep: bool = False,
        sampler_run: SamplerRun | None = None,
    ) -> Agent:
        """Make an agent from a loaded policy, with its own sampler; `sampler_run` if it is part of a run. Raises
        ConfigError."""
        prepare_process(policy)
        longest = settings.rollout.max_total_tokens
        _check_length(policy, longest)
        prompts = load_prompts(prompts_of(policy, settings.policy.prompts))
        context = SamplerContext(policy, longest, lockstep, sampler_run or SamplerRun(), settings.served_dtype)
        sampler = build("sampler", settings.sampler, context)
        return cls(settings, policy, sampler, prompts, limits_of(settings.rollout, prompts))

    def renderer(self, tools: Sequence[Tool]) -> TagRenderer | ToolCallRenderer:
        schemas = [tool.schema for tool in tools]
        return make_renderer(self.policy.tokenizer, self.settings.policy.format, schemas, eos_ids(self.policy))

    def roller(
        self, env: Environment, renderer: Renderer, *, limits: Limits | None = None, temperature: float | None = None
    ) -> Roller:
        own, seed = self.settings.rollout.temperature, self.settings.run.seed
        drawn = own if temperature is None else temperature
        return Roller(env, renderer, self.sampler, limits or self.limits, drawn, seed)

    def solver(self, tools: Sequence[Tool]) -> Roller:
        """Return a solver with these tools; without tools it must answer from its own knowledge."""
        renderer = self.renderer(tools)
        context = EnvironmentContext(tools, self.prompts, renderer.format, self.limits.calls)
        roller = self.roller(build("environment", self.settings.environment, context), renderer)
        return replace(roller, agent=self._runner()) if self.settings.runs_agent else roller

    def _runner(self) -> AgentRunner:
        """Return the runner of the settings' agent."""
        own, policy = self.settings.agent, self.policy
        ends, shape = eos_ids(policy), self.settings.policy.format

        @lru_cache(maxsize=32)
        def conversation(tools: str) -> Conversation:
            return Conversation(policy.tokenizer, shape, json.loads(tools), ends)

        agent = as_agent(build("agent", own, None))
        return AgentRunner(agent, conversation, GATEWAY.open, GATEWAY.close, own.concurrent, own.trained)

    def proposer(
        self,
        tools: Sequence[Tool],
        env: type[AnswerProposerEnv | PassageProposerEnv],
        *,
        limits: Limits | None = None,
        temperature: float | None = None,
    ) -> Roller:
        """Return a proposer with these tools, and the agent's limits and temperature unless others are given."""
        renderer = self.renderer(tools)
        made = env(tools, self.prompts, renderer.format)
        return self.roller(made, renderer, limits=limits, temperature=temperature)

    def template_notice(self) -> str | None:
        tokenizer = self.policy.tokenizer
        return str(check_template(tokenizer)) if tokenizer.chat_template else None

    def decode(self, token_ids: Sequence[int]) -> str:
        return str(self.policy.tokenizer.decode(list(token_ids)))


def limits_of(rollout: RolloutSettings, prompts: PromptSet) -> Limits:
    """Return the limits of rollouts. Raises ConfigError if the prompt set lacks a notice that they need."""
    if rollout.max_malformed:
        prompts["malformed"]
    limits: dict[str, Any] = {item.name: getattr(rollout, item.name) for item in fields(Limits)}
    limits["final_answer"] = prompts["final_answer"].text() if rollout.final_answer else None
    return Limits(**limits)


def _check_length(policy: Policy, max_total_tokens: int) -> None:
    longest = getattr(policy.model.config.get_text_config(), "max_position_embeddings", None)
    if longest is not None and max_total_tokens > longest:
        raise ConfigError(TOO_LONG.format(max_total_tokens, policy.name, longest))
