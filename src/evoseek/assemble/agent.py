"""From a config to an agent at work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transformers.utils import logging as transformers_logging

from evoseek.assemble.sources import open_index, read_questions
from evoseek.config import Config, RolloutConfig, SearchConfig
from evoseek.env.prompts import PromptSet, load_prompts
from evoseek.env.solver import SolverEnv
from evoseek.env.tools import SearchTool
from evoseek.errors import ConfigError
from evoseek.eval.evaluate import Evaluation, evaluate
from evoseek.learner.checkpoint import Checkpoint
from evoseek.policy.load import limit_threads, load_policy
from evoseek.policy.lora import add_adapter
from evoseek.policy.policy import Policy, prompts_of
from evoseek.policy.renderer import make_renderer
from evoseek.policy.sampler import TorchSampler
from evoseek.policy.tags import TagRenderer
from evoseek.policy.template_check import check_template
from evoseek.policy.tool_calls import ToolCallRenderer
from evoseek.protocols import Environment, QuestionEngine, Renderer, RewardFn, SearchEngine, Tool
from evoseek.reward.functions import AnswerReward
from evoseek.rollout.limits import Limits
from evoseek.rollout.player import Player
from evoseek.rollout.run import run_trajectory
from evoseek.search.retrying import RetryingEngine
from evoseek.types import Question, Trajectory

transformers_logging.disable_progress_bar()  # bars about a few files of weights; downloads keep theirs


@dataclass(frozen=True, slots=True)
class Agent:
    """A policy that can be asked: with its sampler, its renderer, and what it is told."""

    config: Config
    policy: Policy
    sampler: TorchSampler
    prompts: PromptSet
    limits: Limits

    @classmethod
    def load(cls, config: Config, *, checkpoint: Checkpoint | None = None, device: str | None = None) -> Agent:
        """The config's model, or the policy of a checkpoint of it; on the config's device unless another is given.

        Raises PolicyError or ConfigError.
        """
        return cls.of(config, load_trainable(config, checkpoint, device=device or config.policy.device))

    @classmethod
    def of(cls, config: Config, policy: Policy) -> Agent:
        """A policy that is loaded, with a sampler of its own. Raises ConfigError."""
        limit_threads(policy)
        rollout = config.rollout
        _check_length(policy, rollout.max_total_tokens)
        prompts = load_prompts(prompts_of(policy, config.policy.prompts))
        return cls(
            config=config,
            policy=policy,
            sampler=TorchSampler(
                policy,
                slots=rollout.slots,
                max_length=rollout.max_total_tokens,
                in_step=bool(config.web.record or config.web.replay),
            ),
            prompts=prompts,
            limits=limits_of(rollout, prompts),
        )

    def solver(self, engine: SearchEngine | QuestionEngine | None) -> Solver:
        """The agent at work on an index; without one it has no tool and must answer by itself."""
        tools = self.tools(engine)
        renderer = self.renderer(tools)
        return Solver(self, renderer, SolverEnv(tools, self.prompts, renderer.format))

    def tools(self, engine: SearchEngine | QuestionEngine | None) -> list[SearchTool]:
        """What a role can use: a search tool, or nothing."""
        return [] if engine is None else [search_tool(self.config.search, self.prompts, engine)]

    def renderer(self, tools: Sequence[Tool]) -> TagRenderer | ToolCallRenderer:
        """How the model is spoken to, in the config's format."""
        return make_renderer(self.policy.tokenizer, self.config.policy.format, [tool.schema for tool in tools])

    def player(
        self, env: Environment, renderer: Renderer, *, limits: Limits | None = None, temperature: float | None = None
    ) -> Player:
        """The agent in a role: with its own limits and temperature unless others are given."""
        return Player(
            env=env,
            renderer=renderer,
            sampler=self.sampler,
            limits=limits or self.limits,
            temperature=self.config.rollout.temperature if temperature is None else temperature,
            seed=self.config.run.seed,
        )

    def publish(self, step: int) -> None:
        """Let the sampler go on with the model's weights, as those of a step. It must be idle."""
        self.sampler.policy_version = step
        self.sampler.reset()

    def template_notice(self) -> str | None:
        """What the model's chat template can do, in words; None if it has none."""
        tokenizer = self.policy.tokenizer
        return str(check_template(tokenizer)) if tokenizer.chat_template else None

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of token ids, control tokens included."""
        return str(self.policy.tokenizer.decode(list(token_ids)))


@dataclass(frozen=True, slots=True)
class Solver:
    """An agent with an environment."""

    agent: Agent
    renderer: TagRenderer | ToolCallRenderer
    env: SolverEnv

    async def evaluate(
        self, questions: list[Question], *, temperature: float, reward: RewardFn | None = None
    ) -> Evaluation:
        """Score the policy as it is now, by the config's answer metric unless a reward is given. The sampler must be
        idle."""
        config = self.agent.config
        self.agent.sampler.reset()
        evaluation = await evaluate(
            questions,
            metric=config.reward.metric,
            reward=reward or AnswerReward(config.reward.metric),
            env=self.env,
            renderer=self.renderer,
            sampler=self.agent.sampler,
            limits=self.agent.limits,
            temperature=temperature,
            seed=config.run.seed,
        )
        self.agent.sampler.reset()
        return evaluation

    async def ask(self, text: str) -> Trajectory:
        """Answer one question, greedily."""
        return await run_trajectory(
            Question("ask", text, ()),
            env=self.env,
            renderer=self.renderer,
            sampler=self.agent.sampler,
            limits=self.agent.limits,
            trajectory_id="ask",
            temperature=0.0,
            seed=self.agent.config.run.seed,
        )


def limits_of(rollout: RolloutConfig, prompts: PromptSet) -> Limits:
    """How far the config's rollouts may go. Raises ConfigError if the prompt set has no words that they need."""
    if rollout.max_malformed:
        prompts["malformed"]
    return Limits(
        max_turns=rollout.max_turns,
        max_tool_calls=rollout.max_tool_calls,
        max_tokens_per_turn=rollout.max_tokens_per_turn,
        max_total_tokens=rollout.max_total_tokens,
        deadline_s=rollout.deadline_s,
        max_malformed=rollout.max_malformed,
        wait_s=rollout.wait_s,
        final_answer=prompts["final_answer"].text() if rollout.final_answer else None,
    )


def search_tool(search: SearchConfig, prompts: PromptSet, engine: SearchEngine | QuestionEngine) -> SearchTool:
    """The tool that searches with an engine. One that failed is called again; a simulated one sees to that itself."""
    if not isinstance(engine, QuestionEngine):
        engine = RetryingEngine(engine, attempts=search.attempts, wait_s=search.wait_s)
    return SearchTool(engine, search.top_k, template=prompts["observation"])


def load_trainable(config: Config, checkpoint: Checkpoint | None, *, device: str) -> Policy:
    """The policy that a run goes on with: a checkpoint's, or the config's model with a new adapter if it asks for one.

    Raises PolicyError.
    """
    if checkpoint is not None:
        return load_policy(str(checkpoint.part_directory("policy")), device=device, dtype=config.policy.dtype)
    policy, lora = load_policy(config.policy.model, device=device, dtype=config.policy.dtype), config.lora
    if lora.rank == 0:
        return policy
    if policy.adapter is not None:
        raise ConfigError(
            f"lora.rank is {lora.rank}, which asks for a new adapter, but {config.policy.model} is one already. Leave "
            "lora.rank at 0 to train it on, or merge it (evoseek export) and give the merged model."
        )
    return add_adapter(policy, "policy", rank=lora.rank, alpha=lora.alpha, targets=lora.targets, seed=config.run.seed)


def evaluation_setting(
    config: Config, agent: Agent, on_the_web: Solver | None = None
) -> tuple[Solver, list[Question]] | None:
    """Who is evaluated on what while training; None if the config names no questions for it."""
    settings = config.evaluation
    if not settings.path:
        return None
    questions = read_questions(settings.path, setting="evaluation.path")[: settings.limit]
    if on_the_web is not None:
        return on_the_web, questions
    index = open_index(settings.index or config.search.index, setting="evaluation.index")
    return agent.solver(index), questions


def evaluation_temperature(config: Config) -> float:
    """The temperature at which held-out questions are answered: the rollouts' own unless another one is set."""
    chosen = config.evaluation.temperature
    return config.rollout.temperature if chosen is None else chosen


def _check_length(policy: Policy, max_total_tokens: int) -> None:
    longest = getattr(policy.model.config.get_text_config(), "max_position_embeddings", None)
    if longest is not None and max_total_tokens > longest:
        raise ConfigError(
            f"rollout.max_total_tokens is {max_total_tokens}, but the model {policy.name} was made for at most "
            f"{longest} tokens. Set rollout.max_total_tokens to {longest} or less."
        )
