"""From a Config to the objects that do the work. The only place that knows which setting goes where."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformers.utils import logging as transformers_logging

from evoseek.config import MAY_DIFFER_ON_RESUME, Config
from evoseek.corpus.questions import load_questions
from evoseek.env.prompts import PromptSet, load_prompts
from evoseek.env.solver import SolverEnv
from evoseek.env.tools import SearchTool
from evoseek.errors import ConfigError
from evoseek.eval.evaluate import Evaluation, evaluate
from evoseek.learner.checkpoint import Checkpoint, latest_checkpoint
from evoseek.learner.learner import Learner
from evoseek.loss.clipped import ClippedLoss
from evoseek.policy.load import Policy, limit_threads, load_policy
from evoseek.policy.renderer import make_renderer
from evoseek.policy.sampler import TorchSampler
from evoseek.policy.tags import TagRenderer
from evoseek.policy.template_check import check_template
from evoseek.policy.tool_calls import ToolCallRenderer
from evoseek.report.metrics import JsonlMetrics
from evoseek.reward.answer import check_golden_answers
from evoseek.reward.functions import AnswerReward
from evoseek.rollout.limits import Limits
from evoseek.rollout.record import TrajectoryWriter
from evoseek.rollout.run import run_trajectory
from evoseek.runs import RunDirectory
from evoseek.search.lexical import LexicalIndex
from evoseek.systems.question_order import questions_of_step
from evoseek.systems.run_state import RunState, resume
from evoseek.systems.search_r1 import SearchR1
from evoseek.systems.training import Evaluate, TrainingLoop
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
    def load(cls, config: Config, *, checkpoint: Checkpoint | None = None) -> Agent:
        """The config's model, or the policy of a checkpoint of it. Raises PolicyError or ConfigError."""
        source = str(checkpoint.policy) if checkpoint else config.policy.model
        policy = load_policy(source, device=config.policy.device, dtype=config.policy.dtype)
        limit_threads(policy)
        prompts = config.policy.prompts
        if prompts == "auto":
            prompts = str(getattr(policy.model.config, "evoseek_prompts", "default"))
        rollout = config.rollout
        _check_length(policy, rollout.max_total_tokens)
        return cls(
            config=config,
            policy=policy,
            sampler=TorchSampler(policy, slots=rollout.slots, max_length=rollout.max_total_tokens),
            prompts=load_prompts(prompts),
            limits=Limits(
                max_turns=rollout.max_turns,
                max_tool_calls=rollout.max_tool_calls,
                max_tokens_per_turn=rollout.max_tokens_per_turn,
                max_total_tokens=rollout.max_total_tokens,
                deadline_s=rollout.deadline_s,
            ),
        )

    def solver(self, engine: LexicalIndex | None) -> Solver:
        """The agent at work on an index; without one it has no tool and must answer by itself."""
        template = self.prompts["observation"]
        tools = [] if engine is None else [SearchTool(engine, self.config.search.top_k, template=template)]
        schemas = [tool.schema for tool in tools]
        renderer = make_renderer(self.policy.tokenizer, self.config.policy.format, schemas)
        form = "tools" if isinstance(renderer, ToolCallRenderer) else "tags"
        return Solver(self, renderer, SolverEnv(tools, self.prompts, form))

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

    async def evaluate(self, questions: list[Question], *, temperature: float) -> Evaluation:
        """Score the policy as it is now. The sampler must be idle."""
        config = self.agent.config
        self.agent.sampler.reset()
        evaluation = await evaluate(
            questions,
            metric=config.reward.metric,
            reward=AnswerReward(config.reward.metric),
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


def open_index(directory: str, *, setting: str) -> LexicalIndex:
    """An index to search. Raises ConfigError if `setting` was left empty, SearchIndexError if it cannot be used."""
    if not directory:
        raise ConfigError(f"No index was given: set {setting} to a directory that `evoseek index` made.")
    return LexicalIndex.open(Path(directory))


def read_questions(path: str, *, setting: str) -> list[Question]:
    """Questions with usable golden answers. Raises ConfigError if `setting` was left empty, DataError if unusable."""
    if not path:
        raise ConfigError(f"No questions were given: set {setting} to a JSON-lines file of questions.")
    return load_questions(Path(path), check=check_golden_answers)


def evaluation_setting(config: Config, agent: Agent) -> tuple[Solver, list[Question]] | None:
    """Who is evaluated on what while training; None if the config names no questions for it."""
    settings = config.evaluation
    if not settings.path:
        return None
    questions = read_questions(settings.path, setting="evaluation.path")[: settings.limit]
    index = open_index(settings.index or config.search.index, setting="evaluation.index")
    return agent.solver(index), questions


def evaluation_temperature(config: Config) -> float:
    """The temperature at which held-out questions are answered: the rollouts' own unless another one is set."""
    chosen = config.evaluation.temperature
    return config.rollout.temperature if chosen is None else chosen


def search_r1_loop(config: Config, run: RunDirectory, *, notify: Callable[[str], None]) -> TrainingLoop:
    """A training loop ready to run; it goes on from the run's last checkpoint if it has one.

    Everything is opened and checked before the config is claimed for the directory, so a mistake leaves no trace. The
    caller holds the run's lock. `notify` is told what the model's chat template can do.
    """
    _check_dtype(config)
    checkpoint = latest_checkpoint(run.path)
    agent = Agent.load(config, checkpoint=checkpoint)
    if notice := agent.template_notice():
        notify(notice)
    solver = agent.solver(open_index(config.search.index, setting="search.index"))
    questions = read_questions(config.questions.path, setting="questions.path")
    first = questions_of_step(questions, seed=config.run.seed, step=1, size=config.questions.per_step)[0]
    _check_prompt(solver, first)
    held_out = evaluation_setting(config, agent)
    run.claim(config.resolved(), may_differ=MAY_DIFFER_ON_RESUME)
    learner = make_learner(config, agent.policy)
    start = resume(run, learner, checkpoint)
    agent.sampler.policy_version = start
    return TrainingLoop(
        system=SearchR1(
            questions=questions,
            env=solver.env,
            renderer=solver.renderer,
            sampler=agent.sampler,
            limits=agent.limits,
            reward=AnswerReward(config.reward.metric),
            learner=learner,
            trajectories=TrajectoryWriter(run.trajectories, agent.decode),
            seed=config.run.seed,
            questions_per_step=config.questions.per_step,
            group_size=config.rollout.group_size,
            temperature=config.rollout.temperature,
            scale=config.algorithm.scale,
        ),
        checkpoints=RunState(run, agent.policy, learner, keep_last=config.run.keep_checkpoints),
        metrics=JsonlMetrics(run.metrics),
        timings=JsonlMetrics(run.timings),
        start=start,
        steps=config.run.steps,
        checkpoint_every=config.run.checkpoint_every,
        evaluate=held_out and _evaluate_with(*held_out, temperature=evaluation_temperature(config)),
        evaluate_every=config.evaluation.every,
        max_invalid=config.run.max_invalid,
    )


def make_learner(config: Config, policy: Policy) -> Learner:
    """The learner of a policy, with the clipped loss."""
    settings, algorithm = config.learner, config.algorithm
    return Learner(
        policy.model,
        loss=ClippedLoss(algorithm.clip_low, algorithm.clip_high, algorithm.aggregate),
        learning_rate=settings.learning_rate,
        warmup_steps=settings.warmup_steps,
        weight_decay=settings.weight_decay,
        betas=settings.betas,
        max_grad_norm=settings.max_grad_norm,
        temperature=config.rollout.temperature,
        token_budget=settings.token_budget,
        bf16=settings.bf16,
    )


def _check_length(policy: Policy, max_total_tokens: int) -> None:
    longest = getattr(policy.model.config.get_text_config(), "max_position_embeddings", None)
    if longest is not None and max_total_tokens > longest:
        raise ConfigError(
            f"rollout.max_total_tokens is {max_total_tokens}, but the model {policy.name} was made for at most "
            f"{longest} tokens. Set rollout.max_total_tokens to {longest} or less."
        )


def _check_dtype(config: Config) -> None:
    if config.policy.dtype != "float32":
        raise ConfigError(
            f"policy.dtype is {config.policy.dtype}, but weights are trained in float32: in {config.policy.dtype} the "
            "small updates of a usual learning rate round to nothing. Set policy.dtype to float32, and learner.bf16 "
            "to true to compute in bfloat16."
        )


def _check_prompt(solver: Solver, question: Question) -> None:
    length = len(solver.renderer.render_prompt(solver.env.messages(question)))
    longest = solver.agent.limits.max_total_tokens
    if length >= longest:
        raise ConfigError(
            f"The prompt of question {question.id} has {length} tokens, but rollout.max_total_tokens is {longest}: no "
            "room is left to answer. Raise rollout.max_total_tokens, or shorten the prompt or the question."
        )


def _evaluate_with(solver: Solver, questions: list[Question], *, temperature: float) -> Evaluate:
    async def evaluate_now(step: int) -> Mapping[str, float]:
        return (await solver.evaluate(questions, temperature=temperature)).metrics()

    return evaluate_now
